//! `[defaults]` and `[kinds."name"]` of the settings file.
//!
//! Owns the policy of a kind and which runner it has; what a command or a call
//! is made of is read in `runners`.

use std::path::Path;
use std::time::Duration;

use fencepost_core::id::{KindName, QueueName};
use fencepost_core::kind::{Builtin, Kind, Kinds, OnCrash, Runner};
use fencepost_core::limits::{ATTEMPTS_MAX, LEASE_MAX, LEASE_MIN, PAYLOAD_BYTES_MAX};
use fencepost_core::retry::Backoff;
use serde::Deserialize;

use super::runners::{CommandText, HttpText, PlannerText, ProbeText};
use super::{SettingsError, value};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Policy {
    max_attempts: Option<u32>,
    lease: Option<String>,
    deadline: Option<String>,
    backoff: Option<BackoffText>,
    on_crash: Option<OnCrash>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackoffText {
    initial: String,
    max: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KindText {
    queue: Option<String>,
    builtin: Option<String>,
    #[serde(default)]
    registered: bool,
    command: Option<CommandText>,
    http: Option<HttpText>,
    probe: Option<ProbeText>,
    planner: Option<PlannerText>,
    #[serde(default)]
    safe_to_repeat: bool,
    concurrency: Option<u32>,
    max_attempts: Option<u32>,
    lease: Option<String>,
    deadline: Option<String>,
    backoff: Option<BackoffText>,
    on_crash: Option<OnCrash>,
    payload_max: Option<String>,
    schema: Option<String>,
}

pub(super) fn bad(
    key: String,
    found: impl Into<String>,
    expected: impl Into<String>,
) -> SettingsError {
    SettingsError::Bad {
        key,
        given_by: "the settings file".to_owned(),
        found: format!("`{}`", found.into()),
        expected: expected.into(),
    }
}

/// The builtin kinds, overridden and extended by those of the file.
pub(crate) fn read(
    defaults: &Policy,
    kinds: &std::collections::BTreeMap<String, KindText>,
    directory: &Path,
) -> Result<Kinds, SettingsError> {
    let mut all = Vec::new();
    for mut kind in Kinds::builtin().iter().cloned() {
        apply(&mut kind, defaults, "defaults")?;
        all.push(kind);
    }
    for (name, text) in kinds {
        all.push(read_kind(name, text, defaults, directory)?);
    }
    Ok(Kinds::new(all))
}

fn read_kind(
    name: &str,
    text: &KindText,
    defaults: &Policy,
    directory: &Path,
) -> Result<Kind, SettingsError> {
    let key = format!("kinds.\"{name}\"");
    let at = |field: &str| format!("{key}.{field}");
    let kind_name = KindName::new(name)
        .map_err(|error| bad(key.clone(), name, format!("a name of {}", error.expected)))?;
    let builtin = Kinds::builtin();
    let queue = match (&text.queue, builtin.get(&kind_name)) {
        (None, Some(kind)) => kind.queue.as_str(),
        (text, _) => text.as_deref().unwrap_or("default"),
    };
    let queue = QueueName::new(queue).map_err(|error| bad(at("queue"), queue, error.expected))?;
    let runner = runner(&kind_name, text, &key, directory)?;
    let calls_out = matches!(runner, Runner::Command(_) | Runner::Http(_));
    if text.safe_to_repeat && !calls_out {
        return Err(bad(
            at("safe_to_repeat"),
            "true",
            "it with `command` or `http` only; a Rust handler says so by not using an effect",
        ));
    }
    let mut kind = Kind::new(kind_name, queue, runner);
    apply(&mut kind, defaults, "defaults")?;
    let own = Policy {
        max_attempts: text.max_attempts,
        lease: text.lease.clone(),
        deadline: text.deadline.clone(),
        backoff: text.backoff.clone(),
        on_crash: text.on_crash,
    };
    apply(&mut kind, &own, &key)?;
    kind.safe_to_repeat = text.safe_to_repeat;
    kind.concurrency = text.concurrency;
    let probe = text.probe.as_ref();
    let probe = probe.map(|probe| probe.settle(&at("probe"), directory));
    kind.probe = probe.transpose()?;
    if let Some(planner) = &text.planner {
        if kind.runner != Runner::Builtin(Builtin::DocumentPrepare) {
            return Err(bad(
                at("planner"),
                "it",
                "it with `builtin = \"document.prepare\"` only",
            ));
        }
        kind.planner = Some(planner.settle(&at("planner"), directory)?);
    }
    if text.concurrency == Some(0) {
        return Err(bad(
            at("concurrency"),
            "0",
            "at least 1; to stop a kind, pause its queue",
        ));
    }
    if let Some(size) = &text.payload_max {
        kind.payload_bytes_max = value::bytes(size)
            .filter(|bytes| (1..=PAYLOAD_BYTES_MAX).contains(bytes))
            .ok_or_else(|| bad(at("payload_max"), size, "a size up to 64KiB"))?;
    }
    if let Some(file) = &text.schema {
        let path = directory.join(file);
        let read = std::fs::read_to_string(&path).map_err(|error| {
            bad(
                at("schema"),
                path.display().to_string(),
                format!("a readable file ({error})"),
            )
        })?;
        let schema = serde_json::from_str(&read).map_err(|error| {
            bad(
                at("schema"),
                path.display().to_string(),
                format!("a JSON Schema ({error})"),
            )
        })?;
        kind.schema = Some(schema);
    }
    Ok(kind)
}

/// The one runner that a kind names.
fn runner(
    name: &KindName,
    text: &KindText,
    key: &str,
    directory: &Path,
) -> Result<Runner, SettingsError> {
    let given: Vec<&str> = [
        ("builtin", text.builtin.is_some()),
        ("command", text.command.is_some()),
        ("http", text.http.is_some()),
        ("registered", text.registered),
    ]
    .into_iter()
    .filter_map(|(word, given)| given.then_some(word))
    .collect();
    if given.len() > 1 {
        return Err(bad(key.to_owned(), given.join(" and "), "one of them"));
    }
    if let Some(word) = &text.builtin {
        let known = Builtin::ALL
            .into_iter()
            .find(|builtin| builtin.as_str() == word);
        let names: Vec<&str> = Builtin::ALL
            .iter()
            .map(|builtin| builtin.as_str())
            .collect();
        let builtin =
            known.ok_or_else(|| bad(format!("{key}.builtin"), word, names.join(" or ")))?;
        return Ok(Runner::Builtin(builtin));
    }
    if let Some(command) = &text.command {
        let settled = command.settle(&format!("{key}.command"), text.safe_to_repeat, directory)?;
        return Ok(Runner::Command(settled));
    }
    if let Some(http) = &text.http {
        let settled = http.settle(&format!("{key}.http"), directory)?;
        return Ok(Runner::Http(settled));
    }
    if text.registered {
        return Ok(Runner::Registered);
    }
    // A table that only changes the policy of a builtin kind.
    match Kinds::builtin().get(name) {
        Some(known) => Ok(known.runner.clone()),
        None => Err(bad(
            key.to_owned(),
            "no runner",
            "`command = { program = […] }`, `http = { url = \"…\" }`, `builtin = \"…\"`, or \
             `registered = true` for a kind that a Rust worker of your own runs",
        )),
    }
}

fn apply(kind: &mut Kind, policy: &Policy, key: &str) -> Result<(), SettingsError> {
    let at = |field: &str| format!("{key}.{field}");
    let time = |field: &str, text: &str| {
        value::duration(text)
            .filter(|duration| *duration > Duration::ZERO)
            .ok_or_else(|| bad(at(field), text, "a duration such as 500ms, 30s, 5m or 1h"))
    };
    if let Some(attempts) = policy.max_attempts {
        if !(1..=ATTEMPTS_MAX).contains(&attempts) {
            return Err(bad(
                at("max_attempts"),
                attempts.to_string(),
                format!("1 to {ATTEMPTS_MAX}"),
            ));
        }
        kind.max_attempts = attempts;
    }
    if let Some(text) = &policy.lease {
        kind.lease = time("lease", text)?;
        if !(LEASE_MIN..=LEASE_MAX).contains(&kind.lease) {
            return Err(bad(at("lease"), text, "500ms to 1h"));
        }
    }
    if let Some(text) = &policy.deadline {
        kind.deadline = time("deadline", text)?;
    }
    if let Some(backoff) = &policy.backoff {
        kind.backoff = Backoff {
            initial: time("backoff.initial", &backoff.initial)?,
            max: time("backoff.max", &backoff.max)?,
        };
    }
    if let Some(on_crash) = policy.on_crash {
        kind.on_crash = on_crash;
    }
    Ok(())
}
