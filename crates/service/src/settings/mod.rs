//! Settings: a file, then the environment, then flags; the later wins.
//!
//! Owns reading, checking and documenting them. A bad setting is one line that
//! names it, where it was given, what was found and what is accepted; it ends
//! the process before any socket opens. Secrets are never shown.

mod file;
mod kinds;
mod reference;
mod runners;
mod table;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fencepost_core::id::QueueName;
use fencepost_core::kind::Kinds;

use file::File;
pub use reference::reference;
use table::{Definition, Shape, TABLE};

use crate::telemetry::LogFormat;

/// The file that is read when none is named and it exists.
pub const FILE: &str = "fencepost.toml";

/// The variable that names the file.
pub const FILE_VARIABLE: &str = "FENCEPOST_CONFIG";

/// A setting could not be used. The text is one line.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A value is not of its form.
    #[error("setting `{key}` (from {given_by}): found {found}, expected {expected}")]
    Bad {
        /// Which setting.
        key: String,
        /// Where it was given.
        given_by: String,
        /// What was found; never a secret.
        found: String,
        /// What is accepted.
        expected: String,
    },
    /// The file could not be read.
    #[error("the settings file {path} cannot be read: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file has a key that is no setting.
    #[error("the settings file {path} has an unknown key `{key}`{hint}")]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The nearest known one.
        hint: String,
    },
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself: for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("redacted")
    }
}

/// A URL whose password is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct RedactedUrl(String);

impl RedactedUrl {
    /// The URL itself, password and all.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RedactedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&value::redacted(&self.0))
    }
}

impl fmt::Debug for RedactedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Looks a variable up by its name.
pub type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Where settings come from.
#[derive(Default)]
pub struct Sources<'a> {
    /// The file that was named; it must exist.
    pub file: Option<PathBuf>,
    /// Looks a variable up.
    pub environment: Option<&'a Environment<'a>>,
    /// (key, value) as given on the command line.
    pub flags: Vec<(String, String)>,
}

impl fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// Looks a variable of this process up: the one place that reads the environment.
pub fn process_environment(name: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the environment"
    )]
    std::env::var(name).ok()
}

/// The keys of the settings that the command line has, each with its help text.
pub fn flags() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE
        .iter()
        .filter(|definition| definition.flag)
        .map(|definition| (definition.key, definition.doc))
}

/// Every setting, read and checked.
#[derive(Debug, Clone)]
#[expect(
    missing_docs,
    reason = "each field is documented in the reference, by its key"
)]
pub struct Settings {
    pub data_dir: PathBuf,
    pub listen: String,
    pub database_url: Option<RedactedUrl>,
    pub amqp_url: Option<RedactedUrl>,
    pub concurrency: u32,
    pub queues: Vec<QueueName>,
    pub url: String,
    pub api_key: Option<Secret>,
    pub bootstrap_key_file: Option<PathBuf>,
    pub health_listen: Option<String>,
    pub log: String,
    pub log_format: LogFormat,
    pub allow_network_filesystem: bool,
    pub blobs: BlobSettings,
    pub shutdown_grace: Duration,
    pub wake_poll: Duration,
    pub http: HttpSettings,
    pub relay: RelaySettings,
    pub retention: RetentionSettings,
    pub worker: WorkerSettings,
    pub amqp: AmqpSettings,
    pub kinds: Kinds,
}

/// `[blobs]`.
#[derive(Debug, Clone)]
#[expect(
    missing_docs,
    reason = "each field is documented in the reference, by its key"
)]
pub struct BlobSettings {
    pub url: Option<String>,
    pub s3_endpoint: Option<String>,
    pub s3_region: String,
    pub s3_access_key_id: Option<String>,
    pub s3_secret_access_key: Option<Secret>,
    pub s3_allow_http: bool,
}

/// `[http]`.
#[derive(Debug, Clone)]
#[expect(
    missing_docs,
    reason = "each field is documented in the reference, by its key"
)]
pub struct HttpSettings {
    pub header_timeout: Duration,
    pub body_timeout: Duration,
    pub request_budget: Duration,
    pub wait_max: Duration,
}

/// `[relay]`.
#[derive(Debug, Clone)]
#[expect(
    missing_docs,
    reason = "each field is documented in the reference, by its key"
)]
pub struct RelaySettings {
    pub poll: Duration,
    pub confirm_timeout: Duration,
    pub leader_lease: Duration,
    pub reap_interval: Duration,
    pub redispatch_initial: Duration,
    pub redispatch_max: Duration,
    pub redispatch_when_empty: Duration,
}

/// `[retention]`.
#[derive(Debug, Clone)]
#[expect(
    missing_docs,
    reason = "each field is documented in the reference, by its key"
)]
pub struct RetentionSettings {
    pub finished: Duration,
    pub keys: Duration,
    pub blobs: Duration,
    pub interval: Duration,
}

/// `[worker]`.
#[derive(Debug, Clone)]
#[expect(
    missing_docs,
    reason = "each field is documented in the reference, by its key"
)]
pub struct WorkerSettings {
    pub heartbeat: Duration,
    pub timeout: Duration,
}

/// `[amqp]`.
#[derive(Debug, Clone)]
#[expect(
    missing_docs,
    reason = "each field is documented in the reference, by its key"
)]
pub struct AmqpSettings {
    pub heartbeat: Duration,
    pub reconnect_initial: Duration,
    pub reconnect_max: Duration,
}

impl Settings {
    /// Reads and checks every setting.
    ///
    /// # Errors
    /// The first [`SettingsError`] found.
    pub fn load(sources: Sources<'_>) -> Result<Self, SettingsError> {
        let environment = |name: &str| sources.environment.and_then(|look_up| look_up(name));
        let named = sources
            .file
            .or_else(|| environment(FILE_VARIABLE).map(PathBuf::from));
        let path = named.clone().unwrap_or_else(|| FILE.into());
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                String::new()
            }
            Err(error) => {
                return Err(SettingsError::File {
                    path,
                    reason: error.to_string(),
                });
            }
        };
        let file = File::parse(&text, &path)?;
        let mut given: BTreeMap<&'static str, Given> = BTreeMap::new();
        for definition in TABLE {
            let flag = sources.flags.iter().find(|(key, _)| key == definition.key);
            let value = flag
                .map(|(_, value)| {
                    (
                        value.clone(),
                        format!("--{}", definition.key.replace('_', "-")),
                    )
                })
                .or_else(|| {
                    Some((
                        environment(definition.variable)?,
                        definition.variable.to_owned(),
                    ))
                })
                .or_else(|| {
                    Some((
                        file.values.get(definition.key)?.clone(),
                        path.display().to_string(),
                    ))
                })
                .unwrap_or_else(|| (definition.default.to_owned(), "its default".to_owned()));
            given.insert(
                definition.key,
                Given {
                    definition,
                    text: value.0,
                    source: value.1,
                },
            );
        }
        let directory = path.parent().unwrap_or(Path::new("."));
        let kinds = kinds::read(&file.defaults, &file.kinds, directory)?;
        Self::from_given(&Values(given), kinds)
    }

    fn from_given(values: &Values, kinds: Kinds) -> Result<Self, SettingsError> {
        Ok(Self {
            data_dir: values.text("data_dir").into(),
            listen: values.text("listen"),
            database_url: values.maybe("database_url").map(RedactedUrl),
            amqp_url: values.maybe("amqp_url").map(RedactedUrl),
            concurrency: values.count("concurrency")?,
            queues: values.queues("queues")?,
            url: values.text("url"),
            api_key: values.maybe("api_key").map(Secret),
            bootstrap_key_file: values.maybe("bootstrap_key_file").map(PathBuf::from),
            health_listen: values.maybe("health_listen"),
            log: values.text("log"),
            log_format: match values.word("log_format")?.as_str() {
                "json" => LogFormat::Json,
                _ => LogFormat::Text,
            },
            allow_network_filesystem: values.switch("allow_network_filesystem")?,
            blobs: BlobSettings {
                url: values.maybe("blobs.url"),
                s3_endpoint: values.maybe("blobs.s3_endpoint"),
                s3_region: values.text("blobs.s3_region"),
                s3_access_key_id: values.maybe("blobs.s3_access_key_id"),
                s3_secret_access_key: values.maybe("blobs.s3_secret_access_key").map(Secret),
                s3_allow_http: values.switch("blobs.s3_allow_http")?,
            },
            shutdown_grace: values.duration("shutdown_grace")?,
            wake_poll: values.duration("wake_poll")?,
            http: HttpSettings {
                header_timeout: values.duration("http.header_timeout")?,
                body_timeout: values.duration("http.body_timeout")?,
                request_budget: values.duration("http.request_budget")?,
                wait_max: values.duration("http.wait_max")?,
            },
            relay: RelaySettings {
                poll: values.duration("relay.poll")?,
                confirm_timeout: values.duration("relay.confirm_timeout")?,
                leader_lease: values.duration("relay.leader_lease")?,
                reap_interval: values.duration("relay.reap_interval")?,
                redispatch_initial: values.duration("relay.redispatch_initial")?,
                redispatch_max: values.duration("relay.redispatch_max")?,
                redispatch_when_empty: values.duration("relay.redispatch_when_empty")?,
            },
            retention: RetentionSettings {
                finished: values.duration("retention.finished")?,
                keys: values.duration("retention.keys")?,
                blobs: values.duration("retention.blobs")?,
                interval: values.duration("retention.interval")?,
            },
            worker: WorkerSettings {
                heartbeat: values.duration("worker.heartbeat")?,
                timeout: values.duration("worker.timeout")?,
            },
            amqp: AmqpSettings {
                heartbeat: values.duration_up_to(
                    "amqp.heartbeat",
                    Duration::from_secs(30),
                    "1s to 30s",
                )?,
                reconnect_initial: values.duration("amqp.reconnect_initial")?,
                reconnect_max: values.duration("amqp.reconnect_max")?,
            },
            kinds,
        })
    }
}

struct Given {
    definition: &'static Definition,
    text: String,
    source: String,
}

struct Values(BTreeMap<&'static str, Given>);

impl Values {
    fn bad(&self, key: &str, expected: String) -> SettingsError {
        let given = self.0.get(key);
        let secret = given.is_some_and(|given| given.definition.shape.is_secret());
        SettingsError::Bad {
            key: key.to_owned(),
            given_by: given.map(|given| given.source.clone()).unwrap_or_default(),
            found: if secret {
                "a secret".to_owned()
            } else {
                format!("`{}`", self.text(key))
            },
            expected,
        }
    }

    fn expected(&self, key: &str) -> String {
        self.0
            .get(key)
            .map(|given| given.definition.shape.expected())
            .unwrap_or_default()
    }

    fn text(&self, key: &str) -> String {
        debug_assert!(self.0.contains_key(key), "`{key}` is not in the table");
        self.0
            .get(key)
            .map(|given| given.text.clone())
            .unwrap_or_default()
    }

    fn maybe(&self, key: &str) -> Option<String> {
        Some(self.text(key)).filter(|text| !text.is_empty())
    }

    fn duration(&self, key: &str) -> Result<Duration, SettingsError> {
        value::duration(&self.text(key))
            .filter(|duration| *duration > Duration::ZERO)
            .ok_or_else(|| self.bad(key, self.expected(key)))
    }

    fn duration_up_to(
        &self,
        key: &str,
        max: Duration,
        expected: &str,
    ) -> Result<Duration, SettingsError> {
        let duration = self.duration(key)?;
        if duration < Duration::from_secs(1) || duration > max {
            return Err(self.bad(key, expected.to_owned()));
        }
        Ok(duration)
    }

    fn count(&self, key: &str) -> Result<u32, SettingsError> {
        let number: Option<u32> = self.text(key).parse().ok();
        number
            .filter(|number| *number > 0)
            .ok_or_else(|| self.bad(key, self.expected(key)))
    }

    fn switch(&self, key: &str) -> Result<bool, SettingsError> {
        self.text(key)
            .parse()
            .map_err(|_| self.bad(key, self.expected(key)))
    }

    fn word(&self, key: &str) -> Result<String, SettingsError> {
        let text = self.text(key);
        match self.0.get(key).map(|given| given.definition.shape) {
            Some(Shape::Word(words)) if words.contains(&text.as_str()) => Ok(text),
            _ => Err(self.bad(key, self.expected(key))),
        }
    }

    fn queues(&self, key: &str) -> Result<Vec<QueueName>, SettingsError> {
        let text = self.text(key);
        let words = text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty());
        words
            .map(|word| {
                QueueName::new(word).map_err(|error| self.bad(key, error.expected.to_owned()))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
