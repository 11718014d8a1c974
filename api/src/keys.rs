//! Who asks: a token becomes a caller, or one and the same refusal.
//!
//! Records are kept for some seconds, so that a busy client costs one reading
//! and a revocation holds soon. Tokens are compared by the hash of their
//! secret, in constant time; nothing of them is logged.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use fencepost_core::id::{Owner, Tenant};
use fencepost_store::{KeyRecord, Role, Scope};
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;

use crate::identity::parse_token;
use crate::problem::{ApiError, Code};
use crate::state::Parts;

/// How long a record is believed: revocation is promised within five seconds,
/// and the reading and the request take their part of them.
const BELIEVED_FOR: Duration = Duration::from_secs(3);

/// Records kept at once: more keys than are in use within [`BELIEVED_FOR`].
const RECORDS_MAX: usize = 1_024;

/// The longest `Authorization` header that is looked at; a token has 100 bytes.
const HEADER_BYTES_MAX: usize = 256;

/// A verified identity.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) tenant: Tenant,
    pub(crate) owner: Owner,
    roles: Vec<Role>,
}

impl Caller {
    fn of(record: &KeyRecord) -> Self {
        Self {
            tenant: record.tenant.clone(),
            owner: record.owner.clone(),
            roles: record.roles.clone(),
        }
    }

    /// Whose jobs it may see: an operator those of its tenant, others their own.
    pub(crate) fn scope(&self) -> Scope {
        let sees_all = self.roles.contains(&Role::Operator);
        Scope {
            tenant: self.tenant.clone(),
            owner: (!sees_all).then(|| self.owner.clone()),
        }
    }

    /// Who acts, for the history.
    pub(crate) fn actor(&self) -> String {
        self.owner.to_string()
    }

    /// Refuses a caller that has none of these roles.
    pub(crate) fn must_be(&self, roles: &[Role]) -> Result<(), ApiError> {
        if self.roles.iter().any(|role| roles.contains(role)) {
            return Ok(());
        }
        let names: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
        let names = names.join(" or ");
        Err(ApiError::new(
            Code::Forbidden,
            format!("this needs a key with the role {names}"),
        ))
    }
}

/// Records that were read lately, by public id.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    records: Mutex<HashMap<String, (Instant, KeyRecord)>>,
}

impl Keys {
    fn records(&self) -> MutexGuard<'_, HashMap<String, (Instant, KeyRecord)>> {
        // A map of copies is consistent whatever happened.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn believed(&self, id: &str) -> Option<KeyRecord> {
        let records = self.records();
        let (read_at, record) = records.get(id)?;
        (read_at.elapsed() < BELIEVED_FOR).then(|| record.clone())
    }

    fn keep(&self, read_at: Instant, record: KeyRecord) {
        let mut records = self.records();
        if records.len() >= RECORDS_MAX {
            records.retain(|_, (read_at, _)| read_at.elapsed() < BELIEVED_FOR);
        }
        if records.len() < RECORDS_MAX {
            records.insert(record.id.clone(), (read_at, record));
        }
    }
}

impl Parts {
    /// Who sent these headers.
    pub(crate) async fn identify(&self, headers: &HeaderMap) -> Result<Caller, ApiError> {
        let token = bearer(headers).and_then(parse_token);
        let (id, hash) = token.ok_or_else(ApiError::unauthenticated)?;
        let record = if let Some(record) = self.keys.believed(&id) {
            record
        } else {
            // The age counts from before the reading.
            let read_at = Instant::now();
            let record = self.ask(self.store.key(&id)).await?;
            let record = record.ok_or_else(ApiError::unauthenticated)?;
            self.keys.keep(read_at, record.clone());
            record
        };
        let same = bool::from(record.secret_hash.ct_eq(&hash));
        if same && record.is_good_at(self.store.now()) {
            Ok(Caller::of(&record))
        } else {
            Err(ApiError::unauthenticated())
        }
    }
}

/// The token of the one `Authorization: Bearer` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?;
    if values.next().is_some() || value.len() > HEADER_BYTES_MAX {
        return None;
    }
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_start_matches(' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::time::Timestamp;

    fn record(id: &str) -> KeyRecord {
        KeyRecord {
            id: id.to_owned(),
            secret_hash: [0; 32],
            tenant: Tenant::new("a").unwrap(),
            owner: Owner::new("b").unwrap(),
            roles: vec![Role::Read],
            created_at: Timestamp::from_millis(0),
            expires_at: None,
            revoked_at: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_is_believed_for_less_than_five_seconds() {
        let keys = Keys::default();
        keys.keep(Instant::now(), record("x"));
        assert!(keys.believed("x").is_some());
        tokio::time::advance(BELIEVED_FOR).await;
        assert!(keys.believed("x").is_none());
        assert!(BELIEVED_FOR < Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn the_records_kept_are_bounded_and_old_ones_make_room() {
        let keys = Keys::default();
        for number in 0..RECORDS_MAX + 10 {
            keys.keep(Instant::now(), record(&number.to_string()));
        }
        assert_eq!(keys.records().len(), RECORDS_MAX);
        tokio::time::advance(BELIEVED_FOR).await;
        keys.keep(Instant::now(), record("new"));
        assert!(keys.believed("new").is_some());
        assert_eq!(keys.records().len(), 1);
    }

    #[test]
    fn the_scheme_is_read_in_any_case_and_the_header_only_once() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(read(&["bEaReR  fp_x"]), Some("fp_x".into()));
        for none in [
            &["Basic fp_x"][..],
            &["Bearer"],
            &["fp_x"],
            &["Bearer a", "Bearer a"],
            &[],
        ] {
            assert_eq!(read(none), None, "{none:?}");
        }
        assert_eq!(read(&[&format!("Bearer {}", "x".repeat(300))]), None);
    }
}
