//! `command`, `http`, `probe` and `planner` of a kind: from what is written to what the worker runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use fencepost_core::kind::{
    Asks, Command, EXIT_DECLINED, HTTP_TIMEOUT, Http, OpenAi, OtherExit, PLANNER_TIMEOUT,
    PROBE_TIMEOUT, Probe, STOP_GRACE,
};
use serde::Deserialize;

use super::kinds::bad;
use super::{SettingsError, value};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandText {
    program: Vec<String>,
    directory: Option<String>,
    user: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    inherit_env: Vec<String>,
    stop_grace: Option<String>,
    exit: Option<ExitText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExitText {
    declined: Option<BTreeSet<u8>>,
    #[serde(default)]
    dead: BTreeSet<u8>,
    other: Option<OtherExit>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpText {
    url: String,
    secret_file: Option<String>,
    timeout: Option<String>,
    #[serde(default)]
    declined: BTreeSet<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProbeText {
    command: Option<CommandText>,
    http: Option<HttpText>,
    timeout: Option<String>,
    every: Option<String>,
}

impl ProbeText {
    pub(super) fn settle(&self, key: &str, directory: &Path) -> Result<Probe, SettingsError> {
        let at = |field: &str| format!("{key}.{field}");
        // Asking changes nothing: it may be asked again.
        let asks = match (&self.command, &self.http) {
            (Some(command), None) => {
                Asks::Command(command.settle(&at("command"), true, directory)?)
            }
            (None, Some(http)) => Asks::Http(http.settle(&at("http"), directory)?),
            (Some(_), Some(_)) | (None, None) => {
                return Err(bad(
                    key.to_owned(),
                    "none or both",
                    "one of `command = { … }` and `http = { … }`",
                ));
            }
        };
        let every = self.every.as_deref();
        let every = every.map(|text| duration(at("every"), Some(text), PROBE_TIMEOUT));
        Ok(Probe {
            asks,
            timeout: duration(at("timeout"), self.timeout.as_deref(), PROBE_TIMEOUT)?,
            every: every.transpose()?,
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlannerText {
    openai: OpenAiText,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenAiText {
    base_url: String,
    model: String,
    key_file: Option<String>,
    timeout: Option<String>,
}

impl PlannerText {
    pub(super) fn settle(&self, key: &str, directory: &Path) -> Result<OpenAi, SettingsError> {
        let openai = &self.openai;
        let at = |field: &str| format!("{key}.openai.{field}");
        if openai.model.is_empty() {
            return Err(bad(at("model"), "", "the name of a model"));
        }
        let timeout = openai.timeout.as_deref();
        Ok(OpenAi {
            base_url: url(at("base_url"), &openai.base_url)?,
            model: openai.model.clone(),
            key_file: openai.key_file.as_ref().map(|file| directory.join(file)),
            timeout: duration(at("timeout"), timeout, PLANNER_TIMEOUT)?,
        })
    }
}

/// A URL that may be called; a password in it would be shown in places.
fn url(key: String, text: &str) -> Result<String, SettingsError> {
    let place = ["https://", "http://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let authority = place.and_then(|place| place.split(['/', '?', '#']).next());
    let usable = authority.is_some_and(|host| !host.is_empty() && !host.contains('@'))
        && text.chars().all(|c| c.is_ascii_graphic());
    if usable {
        Ok(text.to_owned())
    } else {
        let expected = "an http or https URL without a user or password";
        Err(bad(key, value::redacted(text), expected))
    }
}

/// Variables that every command is given; they cannot be set or inherited.
const RESERVED: &str = "FENCEPOST_";

fn duration(key: String, text: Option<&str>, default: Duration) -> Result<Duration, SettingsError> {
    let Some(text) = text else { return Ok(default) };
    value::duration(text)
        .filter(|duration| *duration > Duration::ZERO)
        .ok_or_else(|| bad(key, text, "a duration such as 500ms, 30s, 5m or 1h"))
}

impl CommandText {
    pub(super) fn settle(
        &self,
        key: &str,
        safe_to_repeat: bool,
        directory: &Path,
    ) -> Result<Command, SettingsError> {
        let at = |field: &str| format!("{key}.{field}");
        if self.program.first().is_none_or(String::is_empty) {
            return Err(bad(
                at("program"),
                self.program.join(" "),
                "a program and its arguments, such as [\"./thumb.sh\", \"--fast\"]",
            ));
        }
        let texts = self.program.iter().chain(self.env.values());
        if let Some(text) = texts.into_iter().find(|text| text.contains('\0')) {
            return Err(bad(
                key.to_owned(),
                text.replace('\0', "\\0"),
                "no zero bytes",
            ));
        }
        for name in self.env.keys().chain(&self.inherit_env) {
            let is_name = !name.is_empty() && !name.contains(['=', '\0']);
            if !is_name || name.starts_with(RESERVED) {
                return Err(bad(
                    at("env"),
                    name,
                    format!("a variable's name that does not begin with {RESERVED}"),
                ));
            }
        }
        let place = directory.join(self.directory.as_deref().unwrap_or("."));
        let absolute = std::path::absolute(&place).map_err(|error| {
            bad(
                at("directory"),
                place.display().to_string(),
                error.to_string(),
            )
        })?;
        let user = self.user.as_deref().map(|text| {
            ids(text).ok_or_else(|| {
                bad(
                    at("user"),
                    text,
                    "a user id and a group id, such as `1000:1000`",
                )
            })
        });
        let (declined, dead, other) = self.exits(&at("exit"), safe_to_repeat)?;
        Ok(Command {
            program: self.program.clone(),
            directory: absolute,
            user: user.transpose()?,
            env: self.env.clone(),
            inherit_env: self.inherit_env.clone(),
            stop_grace: duration(at("stop_grace"), self.stop_grace.as_deref(), STOP_GRACE)?,
            declined,
            dead,
            other,
        })
    }

    fn exits(
        &self,
        key: &str,
        safe_to_repeat: bool,
    ) -> Result<(BTreeSet<u8>, BTreeSet<u8>, OtherExit), SettingsError> {
        let given = self.exit.as_ref();
        let declined = given
            .and_then(|exit| exit.declined.clone())
            .unwrap_or_else(|| BTreeSet::from([EXIT_DECLINED]));
        let dead = given.map(|exit| exit.dead.clone()).unwrap_or_default();
        if declined.contains(&0) || dead.contains(&0) {
            return Err(bad(
                key.to_owned(),
                "0",
                "codes from 1 to 255; 0 is success",
            ));
        }
        if let Some(code) = declined.intersection(&dead).next() {
            return Err(bad(
                key.to_owned(),
                code.to_string(),
                "each code in one of `declined` and `dead`",
            ));
        }
        let other = match (given.and_then(|exit| exit.other), safe_to_repeat) {
            (Some(OtherExit::Unknown), true) => {
                return Err(bad(
                    format!("{key}.other"),
                    "unknown",
                    "retry or dead, since the kind is safe to repeat",
                ));
            }
            (Some(other), _) => other,
            (None, true) => OtherExit::Retry,
            (None, false) => OtherExit::Unknown,
        };
        Ok((declined, dead, other))
    }
}

/// `uid` or `uid:gid`; the group of one is the same number.
fn ids(text: &str) -> Option<(u32, u32)> {
    let (user, group) = text.split_once(':').unwrap_or((text, text));
    Some((user.parse().ok()?, group.parse().ok()?))
}

impl HttpText {
    pub(super) fn settle(&self, key: &str, directory: &Path) -> Result<Http, SettingsError> {
        let at = |field: &str| format!("{key}.{field}");
        if let Some(status) = self.declined.iter().find(|it| !(500..=599).contains(*it)) {
            return Err(bad(
                at("declined"),
                status.to_string(),
                "statuses from 500 to 599; those from 400 to 499 always say that nothing was done",
            ));
        }
        Ok(Http {
            url: url(at("url"), &self.url)?,
            secret_file: self.secret_file.as_ref().map(|file| directory.join(file)),
            timeout: duration(at("timeout"), self.timeout.as_deref(), HTTP_TIMEOUT)?,
            declined: self.declined.clone(),
        })
    }
}
