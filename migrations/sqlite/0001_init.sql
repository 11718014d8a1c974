-- Fencepost's tables on SQLite. Times are integers: milliseconds since the
-- Unix epoch, UTC. Ids of jobs are UUIDv7 as 16 bytes. The same tables, columns
-- and names stand in migrations/postgres.

CREATE TABLE job (
    id                  BLOB    NOT NULL PRIMARY KEY,
    tenant              TEXT    NOT NULL,
    owner               TEXT    NOT NULL,
    operation_key       TEXT    NOT NULL,
    fingerprint         BLOB    NOT NULL,
    kind                TEXT    NOT NULL,
    queue               TEXT    NOT NULL,
    priority            INTEGER NOT NULL,
    -- JSON text as sent.
    payload             TEXT    NOT NULL,
    state               TEXT    NOT NULL,
    epoch               INTEGER NOT NULL,
    attempts            INTEGER NOT NULL,
    max_attempts        INTEGER NOT NULL,
    snoozes             INTEGER NOT NULL,
    run_at              INTEGER NOT NULL,
    deadline_at         INTEGER NOT NULL,
    -- The kind's policy at acceptance, so that relay and reaper need no settings.
    timeout_ms          INTEGER NOT NULL,
    backoff_initial_ms  INTEGER NOT NULL,
    backoff_max_ms      INTEGER NOT NULL,
    on_crash            TEXT    NOT NULL,
    lease_expires_at    INTEGER,
    leased_by           TEXT,
    cancel_requested_at INTEGER,
    result              TEXT,
    error_code          TEXT,
    error_message       TEXT,
    trace               TEXT,
    created_at          INTEGER NOT NULL,
    updated_at          INTEGER NOT NULL,
    finished_at         INTEGER,
    CONSTRAINT job_id_is_uuid CHECK (length(id) = 16),
    CONSTRAINT job_key_once UNIQUE (tenant, owner, operation_key),
    CONSTRAINT job_state_known CHECK (
        state IN ('queued', 'leased', 'completed', 'dead', 'cancelled', 'unknown')),
    CONSTRAINT job_on_crash_known CHECK (on_crash IN ('retry', 'hold')),
    CONSTRAINT job_priority_in_range CHECK (priority BETWEEN 0 AND 9),
    CONSTRAINT job_counts_not_negative CHECK (epoch >= 0 AND attempts >= 0 AND snoozes >= 0),
    CONSTRAINT job_attempts_within_budget CHECK (attempts <= max_attempts),
    CONSTRAINT job_leased_has_lease CHECK ((state = 'leased') = (lease_expires_at IS NOT NULL)),
    CONSTRAINT job_leased_has_worker CHECK ((state = 'leased') = (leased_by IS NOT NULL)),
    CONSTRAINT job_leased_has_epoch CHECK (state <> 'leased' OR epoch > 0),
    CONSTRAINT job_completed_has_result CHECK ((state = 'completed') = (result IS NOT NULL)),
    CONSTRAINT job_ended_has_time CHECK (
        (state IN ('completed', 'dead', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT job_failed_has_reason CHECK (
        state NOT IN ('dead', 'cancelled', 'unknown') OR error_code IS NOT NULL)
) STRICT;

-- Lists are read newest first within (tenant, owner) or the tenant.
CREATE INDEX job_of_owner ON job (tenant, owner, id);
CREATE INDEX job_of_tenant ON job (tenant, id);
-- The reaper's two questions.
CREATE INDEX job_lease ON job (lease_expires_at) WHERE state = 'leased';
CREATE INDEX job_deadline ON job (deadline_at) WHERE state IN ('queued', 'leased');
-- Retention's question, and the operator's.
CREATE INDEX job_finished ON job (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX job_unknown ON job (tenant, id) WHERE state = 'unknown';

CREATE TABLE outbox (
    -- AUTOINCREMENT: a sequence number is never used again, so a late
    -- settlement cannot meet the entry of a later life of the job.
    seq              INTEGER PRIMARY KEY AUTOINCREMENT,
    job              BLOB    NOT NULL UNIQUE REFERENCES job (id),
    queue            TEXT    NOT NULL,
    priority         INTEGER NOT NULL,
    -- waiting: not due yet; ready: to be dispatched; taken: on its way to the
    -- broker; published: confirmed and routed; parked: failed alone.
    stage            TEXT    NOT NULL,
    available_at     INTEGER NOT NULL,
    dispatch_no      INTEGER NOT NULL DEFAULT 0,
    taken_until      INTEGER,
    published_at     INTEGER,
    -- Publications that failed alone, while the route confirmed others.
    publish_attempts INTEGER NOT NULL DEFAULT 0,
    redispatches     INTEGER NOT NULL DEFAULT 0,
    put_backs        INTEGER NOT NULL DEFAULT 0,
    last_error       TEXT,
    parked_at        INTEGER,
    CONSTRAINT outbox_stage_known CHECK (
        stage IN ('waiting', 'ready', 'taken', 'published', 'parked')),
    CONSTRAINT outbox_taken_has_limit CHECK ((stage = 'taken') = (taken_until IS NOT NULL)),
    CONSTRAINT outbox_published_has_time CHECK ((stage = 'published') = (published_at IS NOT NULL)),
    CONSTRAINT outbox_parked_has_time CHECK ((stage = 'parked') = (parked_at IS NOT NULL))
) STRICT;

CREATE INDEX outbox_ready ON outbox (queue, priority DESC, seq) WHERE stage = 'ready';
CREATE INDEX outbox_waiting ON outbox (queue, available_at) WHERE stage = 'waiting';
CREATE INDEX outbox_taken ON outbox (queue, taken_until) WHERE stage = 'taken';
CREATE INDEX outbox_published ON outbox (queue, published_at, seq) WHERE stage = 'published';

CREATE TABLE effect (
    job         BLOB    NOT NULL REFERENCES job (id),
    name        TEXT    NOT NULL,
    -- effect: a call to the outside world; step: work that is safe to repeat.
    kind        TEXT    NOT NULL,
    -- The claim under which it was last opened.
    epoch       INTEGER NOT NULL,
    opened_at   INTEGER NOT NULL,
    settled_at  INTEGER,
    declined_at INTEGER,
    outcome     TEXT,
    -- The outcome that a fenced settle brought: for whoever decides.
    evidence    TEXT,
    PRIMARY KEY (job, name),
    CONSTRAINT effect_kind_known CHECK (kind IN ('effect', 'step')),
    CONSTRAINT effect_ends_once CHECK (settled_at IS NULL OR declined_at IS NULL),
    CONSTRAINT effect_settled_has_outcome CHECK ((settled_at IS NOT NULL) = (outcome IS NOT NULL)),
    CONSTRAINT effect_step_is_settled CHECK (kind = 'effect' OR settled_at IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    -- AUTOINCREMENT: a place in the feed is never used again.
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    job     BLOB,
    -- The outbox entry of publications and put-backs, whose repeats share a row.
    entry   INTEGER,
    epoch   INTEGER NOT NULL,
    type    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    actor   TEXT    NOT NULL,
    code    TEXT,
    detail  TEXT,
    count   INTEGER NOT NULL DEFAULT 1,
    last_at INTEGER NOT NULL
) STRICT;

CREATE INDEX event_of_job ON event (job, id);
CREATE UNIQUE INDEX event_of_entry ON event (entry, type) WHERE entry IS NOT NULL;

CREATE TABLE blob (
    tenant      TEXT    NOT NULL,
    hash        BLOB    NOT NULL,
    size        INTEGER NOT NULL,
    last_put_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, hash),
    CONSTRAINT blob_hash_is_sha256 CHECK (length(hash) = 32)
) STRICT, WITHOUT ROWID;

CREATE TABLE job_blob (
    job    BLOB NOT NULL REFERENCES job (id),
    tenant TEXT NOT NULL,
    hash   BLOB NOT NULL,
    PRIMARY KEY (job, hash),
    FOREIGN KEY (tenant, hash) REFERENCES blob (tenant, hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX job_blob_of_blob ON job_blob (tenant, hash);

CREATE TABLE operation_key (
    -- The tombstone of a pruned job's key.
    tenant        TEXT    NOT NULL,
    owner         TEXT    NOT NULL,
    operation_key TEXT    NOT NULL,
    job           BLOB    NOT NULL,
    expires_at    INTEGER NOT NULL,
    PRIMARY KEY (tenant, owner, operation_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX operation_key_expiry ON operation_key (expires_at);

CREATE TABLE api_key (
    -- The public half of the key; the secret half is stored as its SHA-256.
    id          TEXT    NOT NULL PRIMARY KEY,
    secret_hash BLOB    NOT NULL,
    tenant      TEXT    NOT NULL,
    owner       TEXT    NOT NULL,
    -- Words separated by spaces.
    roles       TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER,
    revoked_at  INTEGER,
    CONSTRAINT api_key_hash_is_sha256 CHECK (length(secret_hash) = 32)
) STRICT, WITHOUT ROWID;

CREATE TABLE leader (
    name       TEXT    NOT NULL PRIMARY KEY,
    holder     TEXT    NOT NULL,
    term       INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE worker (
    id         TEXT    NOT NULL PRIMARY KEY,
    version    TEXT    NOT NULL,
    -- A JSON array of names.
    queues     TEXT    NOT NULL,
    slots      INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE queue (
    name      TEXT    NOT NULL PRIMARY KEY,
    paused_at INTEGER,
    paused_by TEXT
) STRICT, WITHOUT ROWID;
