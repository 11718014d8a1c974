//! One connection to the broker, from its opening to its end.
//!
//! Owns the limits on everything that waits for the broker, the heartbeat,
//! and noticing that a connection has ended. Does not open the next one: that
//! is decided by the loops of [`crate::publisher`] and [`crate::consumer`].
//!
//! lapin drives each connection from a thread of its own, which waits for the
//! socket. It cannot be told to give up: a handshake that is never answered,
//! or a broker that blocks us while we leave, would keep thread and socket
//! for good. So each connection has a [`Cord`], a second handle on its socket
//! that closes it under lapin, pulled at the latest when the connection is
//! dropped.

use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use lapin::tcp::{AMQPUriTcpExt as _, AsyncTcpStream};
use lapin::types::ShortString;
use lapin::{Channel, Connection, ConnectionProperties, ConnectionStatus, Event};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use crate::error::{BrokerError, reason};
use crate::url::AmqpUrl;

/// The heartbeat by default. Silence is noticed after two of them, at most
/// two and a half.
pub const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(10);

/// The longest heartbeat: with it, a silent broker is noticed in 75 s.
pub const HEARTBEAT_MAX: Duration = Duration::from_secs(30);

/// How long opening a connection may take by default: some round trips and
/// the broker's check of the password.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long one request to the broker may take by default. Declaring a
/// quorum queue waits for the election of its leader, about 5 s at worst.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(15);

/// The first wait before connecting again, by default: a restarted node is
/// not asked at once by everyone.
pub const RECONNECT_INITIAL: Duration = Duration::from_millis(200);

/// The longest wait before connecting again, by default: work goes on within
/// seconds of the broker's return.
pub const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// How long saying goodbye may take; a broker that blocks us never answers.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// How often a connection is looked at, beside listening to its events: an
/// end that was announced to nobody is noticed all the same.
pub(crate) const LOOK: Duration = Duration::from_millis(500);

/// How to connect, and how long to wait for what.
#[derive(Debug, Clone)]
pub struct ConnectionOptions {
    /// Where to.
    pub url: AmqpUrl,
    /// The name that the broker shows for the connection.
    pub client: String,
    /// The heartbeat, between 1 s and [`HEARTBEAT_MAX`]; whole seconds.
    pub heartbeat: Duration,
    /// For opening a connection.
    pub connect_limit: Duration,
    /// For one request to the broker.
    pub request_limit: Duration,
    /// The first wait before connecting again.
    pub reconnect_initial: Duration,
    /// The longest wait before connecting again.
    pub reconnect_max: Duration,
}

impl ConnectionOptions {
    /// The defaults, for a client of this name.
    pub fn new(url: AmqpUrl, client: impl Into<String>) -> Self {
        Self {
            url,
            client: client.into(),
            heartbeat: HEARTBEAT_DEFAULT,
            connect_limit: CONNECT_LIMIT,
            request_limit: REQUEST_LIMIT,
            reconnect_initial: RECONNECT_INITIAL,
            reconnect_max: RECONNECT_MAX,
        }
    }

    fn heartbeat_seconds(&self) -> u16 {
        let held = self.heartbeat.clamp(Duration::from_secs(1), HEARTBEAT_MAX);
        u16::try_from(held.as_secs()).unwrap_or(1)
    }
}

/// How it stands with one connection. `Lost` is final.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    Up,
    Blocked,
    Lost(String),
}

/// An open connection. Dropping it closes the socket.
#[derive(Debug)]
pub(crate) struct Link {
    connection: Connection,
    request_limit: Duration,
    health: watch::Receiver<Health>,
    _watching: JoinSet<()>,
    cord: Cord,
}

impl Link {
    /// Opens a connection.
    pub(crate) async fn open(options: &ConnectionOptions) -> Result<Self, BrokerError> {
        let cord = Cord::default();
        let failed = |reason: String| BrokerError::Connect {
            address: options.url.address(),
            reason,
        };
        let properties = ConnectionProperties::default()
            .with_connection_name(options.client.as_str().into())
            // Recovery is off by default; so is this, and it must stay so:
            // it would connect again on its own.
            .configure_backoff(|backoff| backoff.with_max_times(0));
        let runtime = lapin::runtime::default_runtime().map_err(|e| failed(reason(&e)))?;
        let (limit, socket) = (options.connect_limit, Arc::clone(&cord.0));
        let connecting = Connection::connector(
            options.url.uri(options.heartbeat_seconds()),
            runtime,
            async move |uri, runtime| {
                // On lapin's thread: without its own limit, this would go on
                // there after we have given up below.
                let stream = timeout(limit, uri.connect_async(&runtime))
                    .await
                    .map_err(std::io::Error::other)??;
                let AsyncTcpStream::Plain(plain) = &stream else {
                    return Err(std::io::Error::other("the URL asks for TLS").into());
                };
                attach(&socket, plain.get_ref().as_fd().try_clone_to_owned()?)?;
                Ok(stream)
            },
            properties,
        );
        let connection = match timeout(limit, connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(failed(reason(&error))),
            Err(_) => return Err(failed(format!("no answer within {limit:?}"))),
        };
        let (sender, health) = watch::channel(Health::Up);
        let mut watching = JoinSet::new();
        let events = connection.events_listener();
        watching.spawn(watch_over(connection.status().clone(), events, sender));
        Ok(Self {
            connection,
            request_limit: options.request_limit,
            health,
            _watching: watching,
            cord,
        })
    }

    /// How it stands, and every change of it.
    pub(crate) fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// Waits until the connection has ended, and says why.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn lost(&self) -> String {
        let mut health = self.health.clone();
        let lost = health.wait_for(|health| matches!(health, Health::Lost(_)));
        match lost.await.as_deref() {
            Ok(Health::Lost(reason)) => reason.clone(),
            Ok(Health::Up | Health::Blocked) | Err(_) => "the connection was dropped".to_owned(),
        }
    }

    /// Opens a channel.
    pub(crate) async fn channel(&self) -> Result<Channel, BrokerError> {
        self.ask("open a channel", self.connection.create_channel())
            .await
    }

    /// Waits for an answer of the broker, for as long as is allowed.
    pub(crate) async fn ask<T>(
        &self,
        doing: &str,
        asked: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, BrokerError> {
        self.limited(doing, asked)
            .await?
            .map_err(|error| BrokerError::failed(doing, &error))
    }

    /// As [`ask`](Self::ask), for callers that look into lapin's error.
    pub(crate) async fn limited<T>(
        &self,
        doing: &str,
        asked: impl Future<Output = lapin::Result<T>>,
    ) -> Result<lapin::Result<T>, BrokerError> {
        timeout(self.request_limit, asked)
            .await
            .map_err(|_| BrokerError::TimedOut {
                doing: doing.to_owned(),
                limit: self.request_limit,
            })
    }

    /// Says goodbye: what was sent before, acks above all, reaches the broker first.
    pub(crate) async fn close(&self) {
        let goodbye = self.connection.close(200, ShortString::from("OK"));
        match timeout(CLOSE_LIMIT, goodbye).await {
            Ok(Ok(())) => {}
            // Gone already, or it does not listen: the socket is closed below.
            Ok(Err(error)) => tracing::debug!("closing a connection: {}", reason(&error)),
            Err(_) => tracing::debug!("closing a connection: no answer within {CLOSE_LIMIT:?}"),
        }
        self.cord.pull();
    }
}

/// Follows a connection until it is lost.
async fn watch_over(
    status: ConnectionStatus,
    events: impl futures_util::Stream<Item = Event> + Send,
    health: watch::Sender<Health>,
) {
    let mut events = std::pin::pin!(events);
    let mut look = interval(LOOK);
    let mut last_error = None;
    loop {
        tokio::select! {
            Some(event) = events.next() => {
                // Also sent for a channel that the broker closed; the state
                // below tells whether the connection went with it.
                if let Event::Error(error) = event {
                    last_error = Some(reason(&error));
                }
            }
            _ = look.tick() => {}
        }
        let now = if !status.connected() {
            let reason = last_error.take();
            Health::Lost(reason.unwrap_or_else(|| "the connection was closed".to_owned()))
        } else if status.blocked() {
            Health::Blocked
        } else {
            Health::Up
        };
        let lost = matches!(now, Health::Lost(_));
        health.send_if_modified(|health| {
            let modified = *health != now;
            *health = now;
            modified
        });
        if lost {
            return;
        }
    }
}

/// A second handle on a connection's socket; dropping it closes the socket.
#[derive(Debug, Default)]
struct Cord(Arc<Mutex<Socket>>);

#[derive(Debug, Default)]
enum Socket {
    #[default]
    NotYet,
    Open(TcpStream),
    Closed,
}

impl Cord {
    fn pull(&self) {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Socket::Open(stream) = std::mem::replace(&mut *socket, Socket::Closed)
            && let Err(error) = stream.shutdown(Shutdown::Both)
        {
            // It was closed from the other end, which is as good.
            tracing::trace!("shutting down a socket: {error}");
        }
    }
}

impl Drop for Cord {
    fn drop(&mut self) {
        self.pull();
    }
}

/// Ties a fresh socket to its cord; refuses it when the cord was pulled.
fn attach(socket: &Mutex<Socket>, fresh: OwnedFd) -> std::io::Result<()> {
    let mut socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
    match *socket {
        Socket::NotYet | Socket::Open(_) => {
            *socket = Socket::Open(TcpStream::from(fresh));
            Ok(())
        }
        Socket::Closed => Err(std::io::Error::other(
            "the connection is not wanted any more",
        )),
    }
}
