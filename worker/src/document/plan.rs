//! What a planner may ask for, and what it gets. Pure.
//!
//! A planner proposes the next tool of a review; [`decide`] is the trusted code
//! that lets it through or ends the job. A proposal is data: it names one of
//! three tools, with parameters that say what the job already says. Whatever
//! else it holds goes nowhere.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema;
use super::tools::{
    BlobRef, CheckName, DraftParameters, ExtractOutput, ExtractParameters, Field, ValidateOutput,
    ValidateParameters,
};

/// Tool calls of one job: each of the three once. More would be a plan that does not end.
pub const STEPS_MAX: u32 = 3;

/// What may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// The lines of the document, with where they stand.
    Extract,
    /// The fields, and whether they agree.
    Validate,
    /// The note. It ends the review.
    Draft,
}

impl Tool {
    /// All of them, in the order in which they make sense.
    pub const ALL: [Self; 3] = [Self::Extract, Self::Validate, Self::Draft];

    /// Its name in proposals.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Extract => "extract",
            Self::Validate => "validate",
            Self::Draft => "draft",
        }
    }

    /// What it does, in a sentence for a planner.
    #[must_use]
    pub fn purpose(self) -> &'static str {
        match self {
            Self::Extract => "Read the lines of the job's document.",
            Self::Validate => {
                "Look for the required fields in the lines that were read, and check them."
            }
            Self::Draft => {
                "Write the note about what was found and what is missing. This ends the review."
            }
        }
    }

    /// The JSON Schema of its parameters.
    #[must_use]
    pub fn parameters(self) -> Value {
        match self {
            Self::Extract => schema::extract_parameters(),
            Self::Validate => schema::validate_parameters(),
            Self::Draft => schema::draft_parameters(),
        }
    }

    fn takes(self, parameters: &Value) -> bool {
        static VALIDATORS: LazyLock<[Option<Validator>; 3]> = LazyLock::new(|| {
            Tool::ALL.map(|tool| jsonschema::validator_for(&tool.parameters()).ok())
        });
        VALIDATORS
            .get(self as usize)
            .and_then(Option::as_ref)
            .is_some_and(|validator| validator.is_valid(parameters))
    }
}

/// What a planner is told of a job: what is asked, and what each finished tool
/// reports in numbers and names. Never a word of the document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Task {
    /// The job's document; none when its text came with the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<BlobRef>,
    /// What is asked of it.
    #[serde(flatten)]
    pub asked: ValidateParameters,
    /// What was done, in order.
    pub finished: Vec<Finished>,
}

/// What a finished tool reports to a planner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "tool", rename_all = "snake_case")]
pub enum Finished {
    /// The document was read.
    Extract {
        /// Its pages.
        pages: u32,
        /// Its lines that are not empty.
        lines: usize,
        /// Whether it has more.
        truncated: bool,
    },
    /// The fields were looked for.
    Validate {
        /// Those that were found.
        found: Vec<Field>,
        /// Those that were required and not found.
        missing: Vec<Field>,
        /// The checks that failed.
        failed: Vec<CheckName>,
    },
}

impl From<&ExtractOutput> for Finished {
    fn from(output: &ExtractOutput) -> Self {
        Self::Extract {
            pages: output.pages,
            lines: output.lines.len(),
            truncated: output.truncated,
        }
    }
}

impl From<&ValidateOutput> for Finished {
    fn from(output: &ValidateOutput) -> Self {
        let failed = output.checks.iter().filter(|check| !check.passed);
        Self::Validate {
            found: output.found.iter().map(|found| found.field).collect(),
            missing: output.missing.clone(),
            failed: failed.map(|check| check.check).collect(),
        }
    }
}

/// What a planner asks for. Anything may stand in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The tool's name.
    pub tool: String,
    /// Its parameters.
    pub parameters: Value,
}

impl Proposal {
    /// To call a tool with these parameters.
    #[must_use]
    pub fn new(tool: Tool, parameters: &impl Serialize) -> Self {
        Self {
            tool: tool.name().to_owned(),
            parameters: serde_json::to_value(parameters).unwrap_or_default(),
        }
    }
}

/// A call that was let through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "tool", content = "parameters", rename_all = "snake_case")]
pub enum Call {
    /// Read the job's own document.
    Extract(ExtractParameters),
    /// Look for what the job requires.
    Validate(ValidateParameters),
    /// Write the note.
    Draft(DraftParameters),
}

/// A proposal was not let through; the job ends. The text names the tool and
/// holds nothing else of the proposal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such tool.
    #[error("the planner proposed {0}; only extract, validate and draft are allowed")]
    Tool(String),
    /// Parameters that the tool's schema does not allow.
    #[error("the parameters proposed for `{}` do not fit its schema", .0.name())]
    Parameters(Tool),
    /// Parameters that ask for other fields or another place than the job does.
    #[error("the parameters proposed for `{}` are not what the job asks for", .0.name())]
    NotAsked(Tool),
    /// Another document than the job's.
    #[error("the planner proposed `extract` of a document that is not the job's")]
    Reference,
    /// A tool before those that it builds on.
    #[error("the planner proposed `{}` before `{}` was done", .0.name(), .1.name())]
    Order(Tool, Tool),
}

impl Refusal {
    /// The stable code that the job ends with.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Tool(_) => "tool_not_allowed",
            Self::Parameters(_) | Self::NotAsked(_) => "tool_parameters_not_allowed",
            Self::Reference => "reference_not_allowed",
            Self::Order(..) => "tool_out_of_order",
        }
    }
}

/// Lets a proposal through or refuses it.
///
/// # Errors
/// [`Refusal`]: it is for good.
pub fn decide(proposal: Proposal, task: &Task) -> Result<Call, Refusal> {
    let Proposal {
        tool: name,
        parameters,
    } = proposal;
    let tool = Tool::ALL
        .into_iter()
        .find(|tool| tool.name() == name)
        .ok_or_else(|| Refusal::Tool(shown(&name)))?;
    if !tool.takes(&parameters) {
        return Err(Refusal::Parameters(tool));
    }
    let unfit = |_| Refusal::Parameters(tool);
    let has = |wanted: Tool| {
        task.finished.iter().any(|finished| match finished {
            Finished::Extract { .. } => wanted == Tool::Extract,
            Finished::Validate { .. } => wanted == Tool::Validate,
        })
    };
    match tool {
        Tool::Extract => {
            let extract: ExtractParameters = serde_json::from_value(parameters).map_err(unfit)?;
            if extract.document != task.document {
                return Err(Refusal::Reference);
            }
            Ok(Call::Extract(extract))
        }
        Tool::Validate => {
            if !has(Tool::Extract) {
                return Err(Refusal::Order(tool, Tool::Extract));
            }
            let asked: ValidateParameters = serde_json::from_value(parameters).map_err(unfit)?;
            let same_fields = asked.required.len() == task.asked.required.len()
                && (asked.required.iter()).all(|field| task.asked.required.contains(field));
            if !same_fields || asked.locale != task.asked.locale {
                return Err(Refusal::NotAsked(tool));
            }
            Ok(Call::Validate(asked))
        }
        Tool::Draft => {
            if !has(Tool::Validate) {
                return Err(Refusal::Order(tool, Tool::Validate));
            }
            let draft = serde_json::from_value(parameters).map_err(unfit)?;
            Ok(Call::Draft(draft))
        }
    }
}

/// Whether a job may ask this: what it asks is what `validate` is asked.
pub(crate) fn is_askable(asked: &ValidateParameters) -> bool {
    serde_json::to_value(asked).is_ok_and(|parameters| Tool::Validate.takes(&parameters))
}

/// A proposed name as the history may hold it: a planner could put anything
/// into a name.
fn shown(name: &str) -> String {
    let is_name = (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if is_name {
        format!("`{name}`")
    } else {
        "something that is no tool's name".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn blob(digit: &str) -> BlobRef {
        BlobRef {
            blob: format!("sha256:{}", digit.repeat(64)),
        }
    }

    fn task(finished: &[Tool]) -> Task {
        let finished = finished.iter().map(|tool| match tool {
            Tool::Extract => Finished::Extract {
                pages: 1,
                lines: 2,
                truncated: false,
            },
            Tool::Validate | Tool::Draft => Finished::Validate {
                found: Vec::new(),
                missing: Vec::new(),
                failed: Vec::new(),
            },
        });
        Task {
            document: Some(blob("a")),
            asked: ValidateParameters {
                required: vec![Field::Issuer, Field::Iban],
                locale: Some("de-DE".to_owned()),
            },
            finished: finished.collect(),
        }
    }

    fn refused(tool: &str, parameters: Value, finished: &[Tool]) -> Refusal {
        let proposal = Proposal {
            tool: tool.to_owned(),
            parameters,
        };
        decide(proposal, &task(finished)).unwrap_err()
    }

    #[test]
    fn the_three_tools_pass_in_their_order() {
        let task = task(&[Tool::Extract, Tool::Validate]);
        let extract = ExtractParameters {
            document: task.document.clone(),
        };
        let draft = DraftParameters {};
        for (proposal, call) in [
            (
                Proposal::new(Tool::Extract, &extract),
                Call::Extract(extract.clone()),
            ),
            (
                Proposal::new(Tool::Validate, &task.asked),
                Call::Validate(task.asked.clone()),
            ),
            (Proposal::new(Tool::Draft, &draft), Call::Draft(draft)),
        ] {
            assert_eq!(decide(proposal, &task), Ok(call));
        }
        let turned = json!({"required": ["iban", "issuer"], "locale": "de-DE"});
        let proposal = Proposal {
            tool: "validate".to_owned(),
            parameters: turned,
        };
        assert!(
            decide(proposal, &task).is_ok(),
            "the order of fields says nothing"
        );
    }

    #[test]
    fn another_tool_is_refused_by_its_name_alone() {
        for name in [
            "send_email",
            "Extract",
            "extract ",
            "",
            "draft\n",
            "\u{1b}[2J",
            "a b",
        ] {
            let refusal = refused(name, json!({"to": "secret@example.com"}), &[]);
            assert_eq!(refusal.code(), "tool_not_allowed", "{name}");
            let text = refusal.to_string();
            assert!(!text.contains("secret") && text.chars().all(|c| !c.is_control()));
        }
        assert!(
            refused("send_email", json!({}), &[])
                .to_string()
                .contains("`send_email`")
        );
        assert!(
            !refused(&"x".repeat(65), json!({}), &[])
                .to_string()
                .contains("xx")
        );
    }

    #[test]
    fn parameters_must_fit_the_schema() {
        for (tool, parameters) in [
            ("extract", json!({"document": {"blob": "sha256:zz"}})),
            (
                "extract",
                json!({"document": {"blob": blob("a").blob, "tenant": "other"}}),
            ),
            ("extract", json!({"path": "/etc/passwd"})),
            ("extract", json!("text")),
            ("validate", json!({"required": ["password"]})),
            ("validate", json!({"required": ["iban", "iban"]})),
            ("validate", json!({"required": ["iban"], "locale": "de DE"})),
            ("validate", json!({})),
            ("draft", json!({"to": "someone"})),
            ("draft", json!(null)),
        ] {
            let refusal = refused(tool, parameters.clone(), &[Tool::Extract, Tool::Validate]);
            assert!(
                matches!(refusal, Refusal::Parameters(_)),
                "{tool} {parameters}: {refusal:?}"
            );
            assert_eq!(refusal.code(), "tool_parameters_not_allowed");
        }
    }

    #[test]
    fn parameters_must_be_what_the_job_asks_for() {
        for parameters in [
            json!({"required": ["issuer"], "locale": "de-DE"}),
            json!({"required": ["issuer", "bic"], "locale": "de-DE"}),
            json!({"required": ["issuer", "iban", "bic"], "locale": "de-DE"}),
            json!({"required": ["issuer", "iban"], "locale": "en-US"}),
            json!({"required": ["issuer", "iban"]}),
        ] {
            let refusal = refused("validate", parameters.clone(), &[Tool::Extract]);
            assert_eq!(refusal, Refusal::NotAsked(Tool::Validate), "{parameters}");
        }
    }

    #[test]
    fn only_the_jobs_own_document_is_read() {
        let refusal = refused("extract", json!({"document": blob("b")}), &[]);
        assert_eq!(refusal.code(), "reference_not_allowed");
        assert_eq!(refused("extract", json!({}), &[]), Refusal::Reference);
    }

    #[test]
    fn a_tool_waits_for_what_it_builds_on() {
        let asked = json!({"required": ["issuer", "iban"], "locale": "de-DE"});
        for (tool, parameters, finished) in [
            ("validate", asked, &[][..]),
            ("draft", json!({}), &[]),
            ("draft", json!({}), &[Tool::Extract]),
        ] {
            let refusal = refused(tool, parameters, finished);
            assert_eq!(refusal.code(), "tool_out_of_order", "{tool}");
        }
    }

    #[test]
    fn the_guide_names_every_field_check_and_code() {
        let guide = include_str!("../../../docs/guides/documents.md");
        let checks = [
            CheckName::IbanCheckDigits,
            CheckName::VatCheckDigits,
            CheckName::NetPlusTax,
            CheckName::DateOrder,
        ];
        let checks = checks.map(|check| json!(check).as_str().unwrap().to_owned());
        let refusals = [
            Refusal::Tool(String::new()),
            Refusal::Parameters(Tool::Draft),
            Refusal::NotAsked(Tool::Draft),
            Refusal::Reference,
            Refusal::Order(Tool::Draft, Tool::Extract),
        ];
        let codes = refusals.iter().map(|refusal| refusal.code().to_owned());
        let fields = Field::ALL.map(|field| field.name().to_owned());
        for word in fields.into_iter().chain(checks).chain(codes) {
            assert!(guide.contains(&format!("`{word}`")), "{word}");
        }
    }

    #[test]
    fn a_planner_is_told_names_and_numbers_only() {
        let told = serde_json::to_value(task(&[Tool::Extract, Tool::Validate])).unwrap();
        assert_eq!(
            told,
            json!({
                "document": blob("a"), "required": ["issuer", "iban"], "locale": "de-DE",
                "finished": [
                    {"tool": "extract", "pages": 1, "lines": 2, "truncated": false},
                    {"tool": "validate", "found": [], "missing": [], "failed": []}
                ]
            })
        );
    }
}
