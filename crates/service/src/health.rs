//! Which parts of a process are ready, and a small listener that says so.
//!
//! Roles with an API of their own answer there; the relay and the worker
//! answer `/healthz` and `/readyz` on the listener of [`serve`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A probe's request is a line and a few headers.
const REQUEST_BYTES_MAX: usize = 8 * 1024;

/// A probe that takes longer than this is cut.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// Probes answered at once; there are one or two.
const CONNECTIONS_MAX: usize = 16;

/// The parts of a process and whether each is ready. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<&'static str, Option<String>>>>,
}

impl Health {
    /// Says that a part is ready.
    pub fn ready(&self, part: &'static str) {
        self.set(part, None);
    }

    /// Says that a part is not ready, and why.
    pub fn not_ready(&self, part: &'static str, why: impl Into<String>) {
        self.set(part, Some(why.into()));
    }

    fn set(&self, part: &'static str, why: Option<String>) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let before = parts.insert(part, why.clone());
        drop(parts);
        if before.as_ref() != Some(&why) {
            match why {
                None if before.is_some() => tracing::info!(part, "ready again"),
                None => {}
                Some(why) => tracing::warn!(part, why, "not ready"),
            }
        }
    }

    /// Whether all parts are ready, and the JSON body that says so.
    pub fn report(&self) -> (bool, String) {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = parts.values().all(Option::is_none);
        let told: BTreeMap<_, _> = parts
            .iter()
            .map(|(part, why)| (*part, why.as_deref().unwrap_or("ready")))
            .collect();
        (ready, json!({"ready": ready, "parts": told}).to_string())
    }
}

/// Answers health probes until dropped.
pub async fn serve(listener: TcpListener, health: Health) {
    let slots = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    let mut answering = tokio::task::JoinSet::new();
    loop {
        while answering.try_join_next().is_some() {}
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let health = health.clone();
                answering.spawn(async move {
                    // A probe that hung up has its answer: none.
                    drop(tokio::time::timeout(REQUEST_LIMIT, answer(stream, &health)).await);
                    drop(slot);
                });
            }
            // Out of file descriptors, most likely: others must end first.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(mut stream: TcpStream, health: &Health) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut chunk = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
        match stream.read(&mut chunk).await? {
            0 => break,
            read => request.extend_from_slice(chunk.get(..read).unwrap_or_default()),
        }
    }
    let (status, body) = if request.starts_with(b"GET /healthz ") {
        ("200 OK", "{\"alive\":true}".to_owned())
    } else if request.starts_with(b"GET /readyz ") {
        let (ready, body) = health.report();
        (
            if ready {
                "200 OK"
            } else {
                "503 Service Unavailable"
            },
            body,
        )
    } else {
        ("404 Not Found", "{\"code\":\"not_found\"}".to_owned())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(address: std::net::SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_process_is_ready_when_all_its_parts_are() {
        let health = Health::default();
        health.ready("database");
        health.not_ready("broker", "connecting");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _server = tokio::task::JoinSet::from_iter([serve(listener, health.clone())]);
        assert!(ask(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let waiting = ask(address, "/readyz").await;
        assert!(
            waiting.starts_with("HTTP/1.1 503") && waiting.contains("\"broker\":\"connecting\""),
            "{waiting}"
        );
        health.ready("broker");
        assert!(ask(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        assert!(ask(address, "/else").await.starts_with("HTTP/1.1 404"));
    }
}
