//! A TCP proxy that a test can turn against the connections through it.
//!
//! Owns the sockets on both of its sides. Knows nothing of the bytes: after a
//! black hole a stream has a gap, so a connection that lost bytes is cut when
//! bytes may pass again, as no protocol could make sense of the rest.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Bytes moved at a time: a usual socket buffer's worth.
const CHUNK: usize = 16 * 1024;

/// What happens to bytes on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They pass.
    Pass,
    /// Each chunk waits for this long first.
    Delay(Duration),
    /// None moves in either direction; nothing is lost, and all of it moves on later.
    Stall,
    /// Those from the server are swallowed, those from the client pass.
    BlackHoleToClient,
    /// All are swallowed, and the sockets stay open.
    BlackHole,
    /// New connections are closed at once; those that exist pass.
    Refuse,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Control {
    mode: Mode,
    /// Rises with every cut: a connection that sees another number ends.
    cuts: u64,
}

/// A proxy on a free port of the loopback, until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    control: watch::Sender<Control>,
    _accepting: JoinSet<()>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.mode.fmt(f)
    }
}

impl Proxy {
    /// Starts a proxy in front of `server` that lets everything pass.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (control, watching) = watch::channel(Control {
            mode: Mode::Pass,
            cuts: 0,
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, server, watching));
        Ok(Self {
            address,
            control,
            _accepting: accepting,
        })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what happens to bytes, on the connections that exist as well.
    pub fn set(&self, mode: Mode) {
        self.control.send_modify(|control| control.mode = mode);
    }

    /// Closes every connection that exists now; new ones are as the mode says.
    pub fn cut(&self) {
        self.control.send_modify(|control| control.cuts += 1);
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, control: watch::Receiver<Control>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let mode = control.borrow().mode;
                if let Ok((client, _)) = accepted && mode != Mode::Refuse {
                    connections.spawn(connect(client, server, control.clone()));
                }
            }
            // Reaps what has ended, so that a long test does not pile up tasks.
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connect(client: TcpStream, server: SocketAddr, control: watch::Receiver<Control>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // The first side that ends takes the other with it: both sockets close.
    tokio::select! {
        _ = pump(from_client, to_server, Direction::ToServer, control.clone()) => {}
        _ = pump(from_server, to_client, Direction::ToClient, control) => {}
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    mut control: watch::Receiver<Control>,
) -> io::Result<()> {
    let cuts = control.borrow().cuts;
    let mut lost = false;
    let mut chunk = vec![0; CHUNK];
    loop {
        let now = *control.borrow_and_update();
        let swallow = match now.mode {
            Mode::BlackHole => true,
            Mode::BlackHoleToClient => direction == Direction::ToClient,
            Mode::Pass | Mode::Delay(_) | Mode::Stall | Mode::Refuse => false,
        };
        if now.cuts != cuts || (lost && !swallow) {
            return Ok(());
        }
        tokio::select! {
            changed = control.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
            }
            read = from.read(&mut chunk), if now.mode != Mode::Stall => {
                let bytes = chunk.get(..read?).unwrap_or_default();
                if bytes.is_empty() {
                    // The end of a stream is news too, and a black hole swallows it.
                    if !swallow {
                        return Ok(());
                    }
                    control.changed().await.map_err(io::Error::other)?;
                } else if swallow {
                    lost = true;
                } else {
                    if let Mode::Delay(delay) = now.mode {
                        sleep(delay).await;
                    }
                    to.write_all(bytes).await?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{eventually, require};
    use tokio::time::timeout;

    const LIMIT: Duration = Duration::from_secs(5);
    /// Long enough for bytes to arrive on a busy machine if they were going to.
    const QUIET: Duration = Duration::from_millis(200);

    async fn echo_server() -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut echoes = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                echoes.spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        (address, tasks)
    }

    async fn echoed(stream: &mut TcpStream, text: &[u8]) -> io::Result<Vec<u8>> {
        stream.write_all(text).await?;
        let mut back = vec![0; text.len()];
        stream.read_exact(&mut back).await?;
        Ok(back)
    }

    #[tokio::test]
    async fn bytes_pass_and_a_cut_closes_the_connection() {
        let (server, _tasks) = echo_server().await;
        let proxy = Proxy::start(server).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(echoed(&mut client, b"hello").await.unwrap(), b"hello");
        proxy.cut();
        let end = timeout(LIMIT, client.read(&mut [0; 1])).await.unwrap();
        assert!(matches!(end, Ok(0) | Err(_)));
        let mut next = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(echoed(&mut next, b"again").await.unwrap(), b"again");
    }

    #[tokio::test]
    async fn a_stall_keeps_the_bytes_and_a_black_hole_costs_the_connection() {
        let (server, _tasks) = echo_server().await;
        let proxy = Proxy::start(server).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        proxy.set(Mode::Stall);
        let stalled = timeout(QUIET, echoed(&mut client, b"slow")).await;
        assert!(stalled.is_err(), "bytes passed a stall");
        proxy.set(Mode::Pass);
        let mut back = [0; 4];
        client.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"slow");

        proxy.set(Mode::BlackHoleToClient);
        let lost = timeout(QUIET, echoed(&mut client, b"lost")).await;
        assert!(lost.is_err(), "bytes passed a black hole");
        proxy.set(Mode::Pass);
        let end = timeout(LIMIT, client.read(&mut [0; 1])).await.unwrap();
        assert!(matches!(end, Ok(0) | Err(_)));
    }

    #[tokio::test]
    async fn refused_connections_end_and_delayed_bytes_arrive() {
        let (server, _tasks) = echo_server().await;
        let proxy = Proxy::start(server).await.unwrap();
        proxy.set(Mode::Refuse);
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(echoed(&mut client, b"no").await.is_err());

        proxy.set(Mode::Delay(Duration::from_millis(1)));
        eventually(LIMIT, "delayed bytes arrive", async || {
            let mut client = TcpStream::connect(proxy.address()).await?;
            let back = echoed(&mut client, b"late").await?;
            require(back == b"late", io::Error::other("other bytes"))
        })
        .await;
    }
}
