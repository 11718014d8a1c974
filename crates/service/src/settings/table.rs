//! Every setting, declared once: its names, unit, default and meaning.
//!
//! Parsing, error texts, the flags of the command line and the reference page
//! all come from this table.

/// What a setting's text must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Any text.
    Text,
    /// Any text, never shown.
    Secret,
    /// A URL whose password is never shown.
    Url,
    /// A path.
    Path,
    /// A number with a unit: `500ms`, `30s`, `5m`, `1h`.
    Duration,
    /// A whole number of at least one.
    Count,
    /// `true` or `false`.
    Switch,
    /// Words separated by commas.
    List,
    /// One of these words.
    Word(&'static [&'static str]),
}

impl Shape {
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Text | Self::Secret => "a text".to_owned(),
            Self::Url => "a URL".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Duration => "a duration such as 500ms, 30s, 5m or 1h".to_owned(),
            Self::Count => "a whole number of at least 1".to_owned(),
            Self::Switch => "true or false".to_owned(),
            Self::List => "names separated by commas".to_owned(),
            Self::Word(words) => words.join(" or "),
        }
    }

    pub(crate) fn is_secret(self) -> bool {
        matches!(self, Self::Secret | Self::Url)
    }
}

/// A setting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Definition {
    /// Its key in the file, with dots for tables. The flag is the same with dashes.
    pub(crate) key: &'static str,
    pub(crate) variable: &'static str,
    /// Whether the command line has it.
    pub(crate) flag: bool,
    pub(crate) shape: Shape,
    /// Empty: not set.
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
}

const fn setting(
    key: &'static str,
    variable: &'static str,
    shape: Shape,
    default: &'static str,
    doc: &'static str,
) -> Definition {
    Definition {
        key,
        variable,
        flag: false,
        shape,
        default,
        doc,
    }
}

const fn flag(definition: Definition) -> Definition {
    Definition {
        flag: true,
        ..definition
    }
}

use Shape::{Count, Duration, List, Path, Secret, Switch, Text, Url, Word};

pub(crate) const TABLE: &[Definition] = &[
    flag(setting(
        "data_dir",
        "FENCEPOST_DATA_DIR",
        Path,
        "./fencepost-data",
        "Where the SQLite file, the blobs and the first key lie.",
    )),
    flag(setting(
        "listen",
        "FENCEPOST_LISTEN",
        Text,
        "127.0.0.1:8080",
        "The address that the API listens on.",
    )),
    flag(setting(
        "database_url",
        "FENCEPOST_DATABASE_URL",
        Url,
        "",
        "The database, such as `sqlite:/var/lib/fencepost/fencepost.db`. Not set: `fencepost.db` in the data directory.",
    )),
    flag(setting(
        "amqp_url",
        "FENCEPOST_AMQP_URL",
        Url,
        "",
        "RabbitMQ, such as `amqp://user:password@host:5672/%2f`. Not set: no broker, workers take jobs from the database.",
    )),
    flag(setting(
        "concurrency",
        "FENCEPOST_CONCURRENCY",
        Count,
        "256",
        "Jobs that a worker runs at once.",
    )),
    flag(setting(
        "queues",
        "FENCEPOST_QUEUES",
        List,
        "",
        "The queues that a worker serves. Not set: all that kinds are configured for.",
    )),
    flag(setting(
        "url",
        "FENCEPOST_URL",
        Text,
        "http://127.0.0.1:8080",
        "Where the command line finds the API.",
    )),
    setting(
        "api_key",
        "FENCEPOST_API_KEY",
        Secret,
        "",
        "The key of the command line. Not set: the one in `dev.key` in the data directory.",
    ),
    setting(
        "bootstrap_key_file",
        "FENCEPOST_BOOTSTRAP_KEY_FILE",
        Path,
        "",
        "A file with an API key to be stored as the first one of a new installation.",
    ),
    flag(setting(
        "health_listen",
        "FENCEPOST_HEALTH_LISTEN",
        Text,
        "",
        "The address on which a relay or worker answers `/healthz` and `/readyz`. Not set: none.",
    )),
    flag(setting(
        "log",
        "FENCEPOST_LOG",
        Text,
        "info,lapin=off",
        "What is logged: a level, or levels by module such as `info,fencepost_relay=debug`.",
    )),
    flag(setting(
        "log_format",
        "FENCEPOST_LOG_FORMAT",
        Word(&["text", "json"]),
        "text",
        "The shape of log lines.",
    )),
    setting(
        "allow_network_filesystem",
        "FENCEPOST_ALLOW_NETWORK_FILESYSTEM",
        Switch,
        "false",
        "Open the SQLite file on a mount whose locks are not trusted (NFS, SMB, 9p, virtiofs).",
    ),
    setting(
        "blobs.url",
        "FENCEPOST_BLOBS_URL",
        Text,
        "",
        "Where blobs lie, such as `s3://bucket/prefix`. Not set: `blobs` in the data directory.",
    ),
    setting(
        "blobs.s3_endpoint",
        "FENCEPOST_BLOBS_S3_ENDPOINT",
        Text,
        "",
        "An S3-compatible server other than Amazon's.",
    ),
    setting(
        "blobs.s3_region",
        "FENCEPOST_BLOBS_S3_REGION",
        Text,
        "us-east-1",
        "The region of the bucket.",
    ),
    setting(
        "blobs.s3_access_key_id",
        "FENCEPOST_BLOBS_S3_ACCESS_KEY_ID",
        Text,
        "",
        "The public half of the bucket's credential.",
    ),
    setting(
        "blobs.s3_secret_access_key",
        "FENCEPOST_BLOBS_S3_SECRET_ACCESS_KEY",
        Secret,
        "",
        "The secret half of the bucket's credential.",
    ),
    setting(
        "blobs.s3_allow_http",
        "FENCEPOST_BLOBS_S3_ALLOW_HTTP",
        Switch,
        "false",
        "Speak plain HTTP to the S3 endpoint.",
    ),
    setting(
        "shutdown_grace",
        "FENCEPOST_SHUTDOWN_GRACE",
        Duration,
        "15s",
        "How long running jobs and requests may take to end after SIGTERM. Leave room before a container is killed.",
    ),
    setting(
        "wake_poll",
        "FENCEPOST_WAKE_POLL",
        Duration,
        "1s",
        "The slow poll behind notifications between processes.",
    ),
    setting(
        "http.header_timeout",
        "FENCEPOST_HTTP_HEADER_TIMEOUT",
        Duration,
        "10s",
        "How long a client may take to send a request's headers.",
    ),
    setting(
        "http.body_timeout",
        "FENCEPOST_HTTP_BODY_TIMEOUT",
        Duration,
        "30s",
        "How long a client may take to send a request's body.",
    ),
    setting(
        "http.request_budget",
        "FENCEPOST_HTTP_REQUEST_BUDGET",
        Duration,
        "8s",
        "How long a request may wait for the database before it is answered 503.",
    ),
    setting(
        "http.wait_max",
        "FENCEPOST_HTTP_WAIT_MAX",
        Duration,
        "60s",
        "The longest `?wait=`.",
    ),
    setting(
        "relay.poll",
        "FENCEPOST_RELAY_POLL",
        Duration,
        "200ms",
        "The relay's pause when nothing wakes it.",
    ),
    setting(
        "relay.confirm_timeout",
        "FENCEPOST_RELAY_CONFIRM_TIMEOUT",
        Duration,
        "10s",
        "How long a publication may wait for the broker's confirm.",
    ),
    setting(
        "relay.leader_lease",
        "FENCEPOST_RELAY_LEADER_LEASE",
        Duration,
        "8s",
        "How long the active relay leads without renewal; a standby takes over after it.",
    ),
    setting(
        "relay.reap_interval",
        "FENCEPOST_RELAY_REAP_INTERVAL",
        Duration,
        "1s",
        "The pause between two looks for leases and deadlines that have passed.",
    ),
    setting(
        "relay.redispatch_initial",
        "FENCEPOST_RELAY_REDISPATCH_INITIAL",
        Duration,
        "60s",
        "When a published and unclaimed entry is dispatched again for the first time.",
    ),
    setting(
        "relay.redispatch_max",
        "FENCEPOST_RELAY_REDISPATCH_MAX",
        Duration,
        "10m",
        "The longest pause between two dispatches of one entry.",
    ),
    setting(
        "relay.redispatch_when_empty",
        "FENCEPOST_RELAY_REDISPATCH_WHEN_EMPTY",
        Duration,
        "10s",
        "When an entry is dispatched again if the broker's queue is empty.",
    ),
    setting(
        "retention.finished",
        "FENCEPOST_RETENTION_FINISHED",
        Duration,
        "7d",
        "How long an ended job is kept, with its history, from its end. Queued, leased and unknown jobs are kept for ever.",
    ),
    setting(
        "retention.keys",
        "FENCEPOST_RETENTION_KEYS",
        Duration,
        "30d",
        "How long an operation key is kept after its job was removed: a repeat is answered 410 until then.",
    ),
    setting(
        "retention.blobs",
        "FENCEPOST_RETENTION_BLOBS",
        Duration,
        "24h",
        "How long a blob that no job refers to is kept, from its last upload.",
    ),
    setting(
        "retention.interval",
        "FENCEPOST_RETENTION_INTERVAL",
        Duration,
        "1m",
        "The pause between two looks for what has served its time.",
    ),
    setting(
        "worker.heartbeat",
        "FENCEPOST_WORKER_HEARTBEAT",
        Duration,
        "5s",
        "How often a worker says that it is alive.",
    ),
    setting(
        "worker.timeout",
        "FENCEPOST_WORKER_TIMEOUT",
        Duration,
        "15s",
        "After this long without a heartbeat a worker's slots no longer count.",
    ),
    setting(
        "amqp.heartbeat",
        "FENCEPOST_AMQP_HEARTBEAT",
        Duration,
        "10s",
        "The heartbeat of connections to RabbitMQ; 30s at most.",
    ),
    setting(
        "amqp.reconnect_initial",
        "FENCEPOST_AMQP_RECONNECT_INITIAL",
        Duration,
        "200ms",
        "The first pause before connecting to RabbitMQ again.",
    ),
    setting(
        "amqp.reconnect_max",
        "FENCEPOST_AMQP_RECONNECT_MAX",
        Duration,
        "5s",
        "The longest pause before connecting to RabbitMQ again.",
    ),
];

pub(crate) fn find(key: &str) -> Option<&'static Definition> {
    TABLE.iter().find(|definition| definition.key == key)
}
