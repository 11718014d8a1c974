//! Slow, long, broken and strange requests, byte by byte.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{Answer, LIMIT, Server, Timers};

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.address).await.unwrap()
}

/// Reads until the server closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = timeout(LIMIT, stream.read_to_end(&mut bytes)).await;
    // A reset after the answer is an end, too.
    drop(read.expect("the server closes in time"));
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn ask(server: &Server, bytes: &[u8]) -> String {
    let mut stream = connect(server).await;
    stream.write_all(bytes).await.unwrap();
    rest(&mut stream).await
}

fn problem(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("no problem: {answer}"))
}

fn quick() -> Timers {
    Timers {
        header: Duration::from_millis(500),
        body: Duration::from_millis(500),
        ..Timers::default()
    }
}

#[tokio::test]
async fn slow_headers_and_idle_connections_are_closed() {
    let server = Server::with(quick()).await;
    let started = Instant::now();
    let mut silent = connect(&server).await;
    let mut slow = connect(&server).await;
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n")
        .await
        .unwrap();
    let mut idle = connect(&server).await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(rest(&mut silent).await, "");
    assert_eq!(rest(&mut slow).await, "");
    assert!(rest(&mut idle).await.starts_with("HTTP/1.1 200"));
    let took = started.elapsed();
    assert!(
        took >= Duration::from_millis(500) && took < Duration::from_secs(10),
        "{took:?}"
    );
}

#[tokio::test]
async fn a_slow_body_is_answered_408_and_its_connection_closed() {
    let server = Server::with(quick()).await;
    for (path, method, length) in [
        ("/jobs", "POST", 100),
        ("/jobs/batch", "POST", 100),
        ("/blobs", "PUT", 100),
    ] {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nidempotency-key: k\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{{",
            server.token
        );
        let answer = ask(&server, head.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 408"), "{path}: {answer}");
        assert!(
            answer.to_lowercase().contains("connection: close"),
            "{answer}"
        );
        assert_eq!(problem(&answer)["code"], "body_timeout");
    }
    assert_eq!(server.store.count_jobs().await.unwrap(), 0);
}

#[tokio::test]
async fn a_body_that_says_it_is_too_long_is_refused_unread() {
    let server = Server::start().await;
    for (path, method, length) in [
        ("/jobs", "POST", 1 << 20),
        ("/jobs/batch", "POST", 9 << 20),
        ("/blobs", "PUT", 17 << 20),
    ] {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nidempotency-key: k\r\n\
             content-type: application/json\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n",
            server.token
        );
        let answer = ask(&server, head.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{path}: {answer}");
        assert_eq!(problem(&answer)["code"], "payload_too_large");
    }
}

#[tokio::test]
async fn a_strangers_body_is_not_waited_for() {
    let server = Server::start().await;
    let head = b"POST /jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let started = Instant::now();
    let mut stream = connect(&server).await;
    stream.write_all(head).await.unwrap();
    let mut answer = [0; 12];
    timeout(LIMIT, stream.read_exact(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_head_that_is_too_long_or_not_http_is_refused_by_the_protocol() {
    let server = Server::start().await;
    let long = format!(
        "GET /healthz HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n",
        "x".repeat(40_000)
    );
    let many = format!(
        "GET /healthz HTTP/1.1\r\nhost: x\r\n{}\r\n",
        "x: 1\r\n".repeat(100)
    );
    for (bytes, status) in [
        (long.as_bytes(), "431"),
        (many.as_bytes(), "431"),
        (b"\x16\x03\x01 hello\r\n\r\n".as_slice(), "400"),
        (
            b"GET /healthz HTTP/1.1\r\nhost: x\r\nidempotency-key: a\0b\r\n\r\n".as_slice(),
            "400",
        ),
    ] {
        let answer = ask(&server, bytes).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn every_refusal_has_the_one_body() {
    let server = Server::start().await;
    let ask = async |method, path| Answer::of(server.anonymous(method, path)).await;
    for path in [
        "/",
        "/job",
        "/jobs/",
        "/jobs/x/y",
        "/metrics",
        "//jobs",
        "/jobs/%2e%2e",
    ] {
        let answer = Answer::of(server.request(Method::GET, path)).await;
        answer.refused(404, "not_found");
    }
    for (method, path, allow) in [
        (Method::DELETE, "/jobs", "GET"),
        (Method::PUT, "/jobs/batch", "POST"),
        (Method::GET, "/blobs", "PUT"),
        (Method::POST, "/healthz", "GET"),
    ] {
        let answer = ask(method, path).await;
        answer.refused(405, "method_not_allowed");
        assert!(
            answer.header("allow").unwrap().contains(allow),
            "{:?}",
            answer.headers
        );
    }
}

#[tokio::test]
async fn a_request_id_that_is_fit_for_a_log_is_kept() {
    let server = Server::start().await;
    let ask = async |id: &str| {
        let answer = Answer::of(
            server
                .anonymous(Method::GET, "/nowhere")
                .header("x-request-id", id),
        )
        .await;
        answer.refused(404, "not_found");
        answer.header("x-request-id").unwrap().to_owned()
    };
    for id in ["a", "trace-1.2_3", &"x".repeat(64)] {
        assert_eq!(ask(id).await, id);
    }
    for id in ["", "a b", "a\tb", "é", &"x".repeat(65), "a=b", "a\"b"] {
        assert_eq!(ask(id).await.len(), 36, "{id:?}");
    }
}
