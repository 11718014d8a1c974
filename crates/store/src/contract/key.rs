//! API keys: a public id, the hash of a secret, and who it stands for.

use std::fmt;

use fencepost_core::id::{Owner, Tenant};
use fencepost_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What a key's holder may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Submit, cancel and retry jobs of its own (tenant, owner).
    Submit,
    /// Read jobs of its own (tenant, owner).
    Read,
    /// See and act on every job of the tenant.
    Operator,
    /// Act on what belongs to no tenant: queues, workers, parked entries.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Submit, Self::Read, Self::Operator, Self::Admin];

    /// The word used in the database, in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Read => "read",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Reads the word of [`Role::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

/// A key as stored. The secret itself is never stored.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its public half, by which it is looked up.
    pub id: String,
    /// SHA-256 of its 256-bit secret half.
    pub secret_hash: [u8; 32],
    /// Whose jobs it makes.
    pub tenant: Tenant,
    /// A stable name given when the key is made; keys that replace each other share it.
    pub owner: Owner,
    /// What it may do.
    pub roles: Vec<Role>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

impl fmt::Debug for KeyRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRecord")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl KeyRecord {
    /// Whether the key is good at an instant.
    pub fn is_good_at(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// Stores a key.
#[derive(Debug, Clone)]
pub struct CreateKey {
    /// The key; its `created_at` is set by the store.
    pub key: KeyRecord,
    /// Only if the store has no key at all: the first key of a new installation.
    pub only_as_first: bool,
    /// Who makes it, for the history.
    pub actor: String,
}

/// What became of a new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum KeyCreated {
    /// It is good from now on.
    Created,
    /// There are keys already, and this was to be the first.
    NotFirst,
}

/// Ends a key, everywhere within five seconds.
#[derive(Debug, Clone)]
pub struct RevokeKey {
    /// Its public half.
    pub id: String,
    /// Who revokes it, for the history.
    pub actor: String,
}

/// What became of a revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum KeyRevoked {
    /// It is revoked; doing it twice is doing it once.
    Revoked,
    /// There is no such key.
    NotFound,
}
