//! `fencepost keys`: API keys, directly on the database.

use std::path::Path;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use fencepost_api::identity;
use fencepost_core::id::{IdSource, Owner, Tenant};
use fencepost_core::time::Timestamp;
use fencepost_store::{CreateKey, KeyCreated, KeyRecord, KeyRevoked, RevokeKey, Role, Store};
use serde_json::json;

use crate::exit::{Exit, Failed};
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    Create(Create),
    /// List keys; their secrets are not stored and cannot be shown
    List,
    Revoke(Revoke),
}

/// Make a key and print it: this once.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Whose jobs it makes: the organisation
    #[arg(long)]
    tenant: Tenant,
    /// Whose jobs it makes within the tenant; keys that replace each other share it
    #[arg(long)]
    owner: Owner,
    /// What it may do: submit, read, operator, admin
    #[arg(long, value_delimiter = ',', default_value = "submit,read", value_parser = role)]
    roles: Vec<Role>,
    /// When it ends (RFC 3339) [default: never]
    #[arg(long)]
    expires_at: Option<String>,
}

fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| "expected submit, read, operator or admin".to_owned())
}

/// End a key, everywhere within five seconds.
#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// The key's public id, as `keys list` shows it
    id: String,
}

impl Keys {
    pub(crate) async fn run(
        self,
        store: &Store,
        ids: &dyn IdSource,
        format: Format,
    ) -> anyhow::Result<Exit> {
        match self {
            Self::Create(create) => create.run(store, ids, format).await,
            Self::List => list(store, format).await,
            Self::Revoke(revoke) => revoke.run(store).await,
        }
    }
}

/// Who acts on the database by the command line, for the history.
const ACTOR: &str = "cli";

impl Create {
    async fn run(self, store: &Store, ids: &dyn IdSource, format: Format) -> anyhow::Result<Exit> {
        let expires_at = self
            .expires_at
            .map(|text| Timestamp::parse(&text))
            .transpose()
            .map_err(|error| Failed::new(Exit::Usage, format!("--expires-at: {error}")))?;
        let (id, secret_hash, token) = identity::generate(ids);
        let key = KeyRecord {
            id: id.clone(),
            secret_hash,
            tenant: self.tenant,
            owner: self.owner,
            roles: self.roles,
            created_at: store.now(),
            expires_at,
            revoked_at: None,
        };
        let create = CreateKey {
            key,
            only_as_first: false,
            actor: ACTOR.to_owned(),
        };
        match store.create_key(create).await.context("storing the key")? {
            KeyCreated::Created | KeyCreated::NotFirst => {}
        }
        match format {
            Format::Json => output::line(json!({"id": id, "key": token}).to_string()),
            Format::Text => output::line(token),
        }
        Ok(Exit::Done)
    }
}

impl Revoke {
    async fn run(self, store: &Store) -> anyhow::Result<Exit> {
        let revoke = RevokeKey {
            id: self.id.clone(),
            actor: ACTOR.to_owned(),
        };
        match store.revoke_key(revoke).await.context("revoking the key")? {
            KeyRevoked::Revoked => Ok(Exit::Done),
            KeyRevoked::NotFound => Err(Failed::new(
                Exit::False,
                format!("there is no key with the id {}", self.id),
            )
            .into()),
        }
    }
}

async fn list(store: &Store, format: Format) -> anyhow::Result<Exit> {
    let keys = store.keys().await.context("reading the keys")?;
    let now = store.now();
    let roles = |key: &KeyRecord| {
        key.roles
            .iter()
            .map(|role| role.as_str())
            .collect::<Vec<_>>()
    };
    let status = |key: &KeyRecord| match (key.revoked_at, key.is_good_at(now)) {
        (Some(_), _) => "revoked",
        (None, true) => "good",
        (None, false) => "expired",
    };
    if format == Format::Json {
        for key in &keys {
            let line = json!({
                "id": key.id, "tenant": key.tenant, "owner": key.owner, "roles": roles(key),
                "created_at": key.created_at, "expires_at": key.expires_at, "revoked_at": key.revoked_at,
                "status": status(key),
            });
            output::line(line.to_string());
        }
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = keys
        .iter()
        .map(|key| {
            let end = key
                .expires_at
                .map_or_else(|| "never".to_owned(), |end| end.to_string());
            vec![
                key.id.clone(),
                key.tenant.to_string(),
                key.owner.to_string(),
                roles(key).join(","),
                status(key).to_owned(),
                key.created_at.to_string(),
                end,
            ]
        })
        .collect();
    output::table(
        &[
            "ID", "TENANT", "OWNER", "ROLES", "STATUS", "CREATED", "EXPIRES",
        ],
        &rows,
    );
    Ok(Exit::Done)
}

/// Makes the first key of a new installation and writes it where the command line finds it.
///
/// Does nothing when there are keys already. The file is written before the key is
/// stored: a crash in between leaves a file that the next start overwrites.
pub(crate) async fn first(store: &Store, ids: &dyn IdSource, file: &Path) -> anyhow::Result<()> {
    if !store.keys().await.context("reading the keys")?.is_empty() {
        return Ok(());
    }
    let (id, secret_hash, token) = identity::generate(ids);
    write_secret(file, &token)
        .with_context(|| format!("writing the first key to {}", file.display()))?;
    let created = store_first(store, id, secret_hash, "up").await?;
    if created == KeyCreated::NotFirst {
        // Another process was quicker; its file is overwritten by ours and useless.
        tracing::warn!(file = %file.display(), "another process made the first key; make one with `fencepost keys create`");
    }
    Ok(())
}

/// The public half of the key in `deploy/development.key`.
const DEVELOPMENT_KEY: &str = "d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0";

/// Stores the key of a bootstrap file as the first one, if there is none.
pub(crate) async fn bootstrap(store: &Store, file: &Path) -> anyhow::Result<()> {
    let token = std::fs::read_to_string(file)
        .with_context(|| format!("reading the bootstrap key file {}", file.display()))?;
    let (id, secret_hash) = identity::parse_token(token.trim()).ok_or_else(|| {
        Failed::new(
            Exit::BadConfig,
            format!(
                "{} does not hold an API key as `fencepost keys create` prints it",
                file.display()
            ),
        )
    })?;
    if id == DEVELOPMENT_KEY {
        tracing::warn!(file = %file.display(), "the first key is the one for development, which everybody knows: give another before others can reach this");
    }
    match store_first(store, id, secret_hash, "bootstrap").await? {
        // There are keys already: the file did its work at an earlier start.
        KeyCreated::Created | KeyCreated::NotFirst => Ok(()),
    }
}

async fn store_first(
    store: &Store,
    id: String,
    secret_hash: [u8; 32],
    actor: &str,
) -> anyhow::Result<KeyCreated> {
    let name = "default";
    let key = KeyRecord {
        id,
        secret_hash,
        tenant: Tenant::new(name)?,
        owner: Owner::new(name)?,
        roles: Role::ALL.to_vec(),
        created_at: store.now(),
        expires_at: None,
        revoked_at: None,
    };
    let create = CreateKey {
        key,
        only_as_first: true,
        actor: actor.to_owned(),
    };
    store
        .create_key(create)
        .await
        .context("storing the first key")
}

/// Writes a file that only its owner can read, replacing it as a whole.
fn write_secret(file: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let partial = file.with_extension("key.partial");
    let mut out = std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&partial)?;
    writeln!(out, "{text}")?;
    out.sync_all()?;
    std::fs::rename(partial, file)
}
