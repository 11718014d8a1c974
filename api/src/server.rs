//! Connections: how many, how slow, for how long, and how they end.
//!
//! hyper is driven directly, since axum's own server can limit neither the
//! time for headers nor the life of a connection. Owns the listener's loop and
//! the graceful end: no new connections, idle ones closed, running requests
//! finished within the grace, the rest cut.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use crate::routes;
use crate::state::{Api, Parts};

/// Connections at once. More wait in the kernel's backlog.
pub const CONNECTIONS_MAX: usize = 4_096;

/// The head of a request in bytes: the usual bound of servers and proxies. What is longer is
/// answered 431, without a body.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Header fields of a request: what clients and proxies send, several times over.
const HEADERS_MAX: usize = 64;

/// A connection is closed after this time, when its running request has ended:
/// one that is never read from cannot keep its place, and clients spread anew
/// over several servers.
const CONNECTION_LIFETIME: Duration = Duration::from_mins(10);

/// How long a connection at the end of its life may take for what it still does:
/// longer than the longest wait and the slowest body.
const LAST_REQUEST: Duration = Duration::from_mins(5);

/// The pause after the system refused a connection: out of file descriptors,
/// most likely, and others must end first.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// Serves an API until `shutdown` resolves, then ends gracefully.
///
/// Answers running requests within the configured grace; requests that hold
/// for `?wait=` are answered at once.
///
/// # Cancel safety
/// Dropping the future cuts every connection. What the store has in hand is
/// committed all the same.
pub async fn serve(listener: TcpListener, api: Api, shutdown: impl Future<Output = ()>) {
    let Api(parts) = api;
    let service = TowerToHyperService::new(routes::router(Arc::clone(&parts)));
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(parts.timers.header)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEAD_BYTES_MAX);
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut follower = JoinSet::new();
    {
        let parts = Arc::clone(&parts);
        follower.spawn(async move { parts.waiters.follow(&parts.store).await });
    }

    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        while let Some(ended) = connections.try_join_next() {
            note(ended);
        }
        let (stream, slot) = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        let connection = Connection {
            builder: builder.clone(),
            service: service.clone(),
            parts: Arc::clone(&parts),
        };
        connections.spawn(async move {
            connection.run(stream).await;
            drop(slot);
        });
    }
    drop(listener);
    parts.ending.send_replace(true);
    let ended = timeout(parts.timers.grace, async {
        while let Some(ended) = connections.join_next().await {
            note(ended);
        }
    });
    if ended.await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "requests were cut at the end of the grace"
        );
        connections.shutdown().await;
    }
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // Never closed: a permit comes.
    let slot = Arc::clone(slots).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(REFUSED_PAUSE).await;
            }
        }
    }
}

fn note(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("a request ended by a panic; its connection is closed");
    }
}

struct Connection {
    builder: http1::Builder,
    service: TowerToHyperService<Router>,
    parts: Arc<Parts>,
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        // Answers are small and complete: nothing is gained by waiting for more.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "the connection keeps its delay");
        }
        let connection = self
            .builder
            .serve_connection(TokioIo::new(stream), self.service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = self.parts.ending() => None,
            () = sleep(CONNECTION_LIFETIME) => None,
        };
        let ended = if let Some(ended) = ended {
            ended
        } else {
            connection.as_mut().graceful_shutdown();
            let Ok(ended) = timeout(LAST_REQUEST, connection).await else {
                tracing::debug!("a connection was cut at the end of its life");
                return;
            };
            ended
        };
        if let Err(error) = ended {
            // Clients hang up, send garbage or nothing: theirs, not ours.
            tracing::debug!(%error, "a connection ended");
        }
    }
}
