//! A receiver that makes its effects exactly once, however often it is asked.
//!
//! `receiver ADDRESS LEDGER [SECRET-FILE]`. What it is asked to do is to add a
//! line to a file; that stands for whatever your service does. Three rules make
//! it safe to call from a system whose workers crash, freeze and come back:
//!
//! 1. A **repeated key** is answered as it was the first time, and does nothing.
//! 2. A **lower epoch** than the job was seen with is refused: whoever sends it
//!    has lost the job since, and may be an hour late.
//! 3. What was done and that it was done are **one durable write**.
//!
//! With a secret it also checks the signature (Standard Webhooks).

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A line of the ledger: an effect that was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    key: String,
    job: String,
    epoch: u64,
}

#[derive(Debug)]
struct Ledger {
    file: File,
    /// Effects by their key.
    made: HashMap<String, Entry>,
    /// The highest epoch that each job was seen with.
    epochs: HashMap<String, u64>,
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Made,
    MadeBefore,
    Stale { seen: u64 },
}

impl Ledger {
    fn open(path: &PathBuf) -> Result<Self, Failure> {
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(path)?;
        let mut ledger = Self {
            file: file.try_clone()?,
            made: HashMap::new(),
            epochs: HashMap::new(),
        };
        let mut text = String::new();
        BufReader::new(file).read_to_string(&mut text)?;
        for line in text.lines() {
            // A crash may have left half a line: its effect was not made.
            if let Ok(entry) = serde_json::from_str(line) {
                ledger.remember(entry);
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            ledger.file.write_all(b"\n")?;
        }
        Ok(ledger)
    }

    fn remember(&mut self, entry: Entry) {
        let seen = self.epochs.entry(entry.job.clone()).or_default();
        *seen = entry.epoch.max(*seen);
        self.made.insert(entry.key.clone(), entry);
    }

    /// Makes the effect, unless it was made before or asked for by someone who is late.
    fn take(&mut self, entry: Entry) -> Result<Answer, Failure> {
        let seen = self.epochs.get(&entry.job).copied().unwrap_or_default();
        if entry.epoch < seen {
            return Ok(Answer::Stale { seen });
        }
        self.epochs.insert(entry.job.clone(), entry.epoch);
        if self.made.contains_key(&entry.key) {
            return Ok(Answer::MadeBefore);
        }
        // The effect and the record of it are one line, on disk before the answer.
        let line = serde_json::to_string(&entry)?;
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.file.sync_data()?;
        self.remember(entry);
        Ok(Answer::Made)
    }
}

#[derive(Debug)]
struct Receiver {
    ledger: Mutex<Ledger>,
    secret: Option<Vec<u8>>,
    /// Stands for an answer that takes its time.
    takes: Duration,
}

async fn receive(
    State(receiver): State<Arc<Receiver>>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
    let (Some(key), Some(job), Some(epoch)) = (
        text("idempotency-key"),
        text("fencepost-job-id"),
        text("fencepost-epoch").and_then(|epoch| epoch.parse().ok()),
    ) else {
        let needed = "Idempotency-Key, Fencepost-Job-Id and Fencepost-Epoch are needed\n";
        return (StatusCode::BAD_REQUEST, needed.to_owned());
    };
    if let Some(secret) = &receiver.secret
        && !is_signed(secret, &headers, &body)
    {
        return (StatusCode::UNAUTHORIZED, "not signed by us\n".to_owned());
    }
    let entry = Entry { key, job, epoch };
    let taken = {
        let mut ledger = receiver
            .ledger
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        ledger.take(entry.clone())
    };
    tokio::time::sleep(receiver.takes).await;
    match taken {
        Ok(Answer::Made) => (StatusCode::CREATED, format!("{} made", entry.key)),
        Ok(Answer::MadeBefore) => (StatusCode::OK, format!("{} made", entry.key)),
        Ok(Answer::Stale { seen }) => (
            StatusCode::CONFLICT,
            format!("epoch {epoch} is over: the job was seen with {seen}\n"),
        ),
        // Whether the line reached the disk is not known, and so the caller is told.
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
    }
}

/// Checks the header as standardwebhooks.com says: any of its signatures may be right.
fn is_signed(secret: &[u8], headers: &HeaderMap, body: &[u8]) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(id), Some(at), Some(signatures)) = (
        text("webhook-id"),
        text("webhook-timestamp"),
        text("webhook-signature"),
    ) else {
        return false;
    };
    // A receiver of your own also refuses timestamps that are minutes old.
    signatures.split(' ').any(|signature| {
        let given = signature.strip_prefix("v1,");
        let given = given.and_then(|text| STANDARD.decode(text).ok());
        let mac = Hmac::<Sha256>::new_from_slice(secret).ok();
        let (Some(given), Some(mut mac)) = (given, mac) else {
            return false;
        };
        mac.update(format!("{id}.{at}.").as_bytes());
        mac.update(body);
        // In constant time.
        mac.verify_slice(&given).is_ok()
    })
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: receiver ADDRESS LEDGER [SECRET-FILE] (RECEIVER_TAKES_MS: how long each answer takes)";
    let address = arguments.next().ok_or(usage)?;
    let ledger = PathBuf::from(arguments.next().ok_or(usage)?);
    let secret = arguments.next().map(std::fs::read_to_string).transpose()?;
    let secret = secret.map(|text| {
        let text = text.trim();
        let bytes = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text));
        bytes.map_err(|_| "the secret is not `whsec_` and Base64")
    });
    let takes = fencepost_service::settings::process_environment("RECEIVER_TAKES_MS");
    let receiver = Arc::new(Receiver {
        ledger: Mutex::new(Ledger::open(&ledger)?),
        secret: secret.transpose()?,
        takes: Duration::from_millis(takes.map_or(Ok(0), |ms| ms.parse())?),
    });
    let router = Router::new().route("/", post(receive)).with_state(receiver);
    let listener = tokio::net::TcpListener::bind(&address).await?;
    let mut out = std::io::stdout();
    writeln!(out, "receiving on http://{}/", listener.local_addr()?)?;
    out.flush()?;
    axum::serve(listener, router).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, epoch: u64) -> Entry {
        Entry {
            key: format!("job/{key}"),
            job: "job".to_owned(),
            epoch,
        }
    }

    #[test]
    fn a_repeated_key_does_nothing_and_a_lower_epoch_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        let mut ledger = Ledger::open(&path).unwrap();
        assert_eq!(ledger.take(entry("a", 2)).unwrap(), Answer::Made);
        assert_eq!(ledger.take(entry("a", 2)).unwrap(), Answer::MadeBefore);
        assert_eq!(ledger.take(entry("a", 3)).unwrap(), Answer::MadeBefore);
        let stale = Answer::Stale { seen: 3 };
        assert_eq!(ledger.take(entry("a", 2)).unwrap(), stale);
        assert_eq!(ledger.take(entry("b", 1)).unwrap(), stale);
        // As it was before a crash in the middle of a line.
        ledger.file.write_all(b"{\"key\": \"job/b").unwrap();
        let mut ledger = Ledger::open(&path).unwrap();
        assert_eq!(ledger.take(entry("a", 4)).unwrap(), Answer::MadeBefore);
        assert_eq!(ledger.take(entry("b", 4)).unwrap(), Answer::Made);
        let mut ledger = Ledger::open(&path).unwrap();
        assert_eq!(ledger.take(entry("b", 4)).unwrap(), Answer::MadeBefore);
        assert_eq!(
            ledger.take(entry("b", 1)).unwrap(),
            Answer::Stale { seen: 4 }
        );
    }
}
