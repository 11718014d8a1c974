//! A server for tests of what a worker sends, and of what it makes of each answer.

use std::sync::{Arc, Mutex};

use fencepost_testkit::wait::{eventually, require};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::setup::PATIENCE;

/// What the receiver does with a request, once it has read it whole.
#[derive(Clone)]
pub(crate) enum Does {
    /// Sends these bytes and closes.
    Answers(String),
    /// Closes without a word.
    HangsUp,
    /// Keeps the connection and says nothing.
    Nothing,
}

impl Does {
    /// The same answer, broken off before its last byte.
    pub(crate) fn cut(self) -> Self {
        match self {
            Self::Answers(mut text) => {
                text.pop();
                Self::Answers(text)
            }
            other => other,
        }
    }
}

pub(crate) fn status(line: &str, headers: &str, body: &str) -> Does {
    Does::Answers(format!(
        "HTTP/1.1 {line}\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    ))
}

/// A server that speaks as much HTTP as it must, and remembers what it was sent.
pub(crate) struct Receiver {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl Receiver {
    /// Answers the first request with the first, and so on; the last stands for all others.
    pub(crate) async fn new(does: Vec<Does>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?team=7", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut kept = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read(&mut stream).await;
                let number = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(request);
                    seen.len() - 1
                };
                match does.get(number).or(does.last()).unwrap() {
                    Does::Answers(text) => stream.write_all(text.as_bytes()).await.unwrap(),
                    Does::HangsUp => {}
                    Does::Nothing => kept.push(stream),
                }
            }
        });
        Self {
            url,
            requests,
            _task: task,
        }
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) async fn was_called(&self, times: usize) {
        eventually(PATIENCE, "calls of the receiver", async || {
            let seen = self.requests().len();
            require(seen >= times, seen)
        })
        .await;
    }
}

/// A request, its headers in lower case.
async fn read(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).await.unwrap();
        assert_ne!(read, 0, "the request broke off: {text}");
        text.push_str(std::str::from_utf8(buffer.get(..read).unwrap()).unwrap());
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            if body.len() == length.unwrap().parse::<usize>().unwrap() {
                return format!("{head}\r\n\r\n{body}");
            }
        }
    }
}
