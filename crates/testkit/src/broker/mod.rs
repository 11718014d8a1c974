//! A real RabbitMQ for tests.
//!
//! [`SharedBroker`] is one virtual host, for one test, of the node that the
//! test command started. [`BrokerNode`] is a private node, for tests that
//! kill it, fill it up or configure it. [`Admin`] looks at and meddles with
//! either from the outside, over the management API.

mod admin;
mod launch;
mod node;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result};

pub use admin::{Admin, Channel, Connection, Queue};
pub use launch::is_installed;
pub use node::{BrokerNode, NodeOptions};

/// Where the shared node's URL is found: `amqp://user:password@host:port`.
pub const AMQP_URL_VARIABLE: &str = "FENCEPOST_TEST_AMQP_URL";

/// Where the management API's URL is found: `http://user:password@host:port`.
pub const ADMIN_URL_VARIABLE: &str = "FENCEPOST_TEST_AMQP_ADMIN_URL";

/// A virtual host of the shared node, empty at first and gone when dropped.
#[derive(Debug)]
pub struct SharedBroker {
    amqp_url: String,
    admin: Admin,
}

impl SharedBroker {
    /// Creates a virtual host of its own for the calling test.
    ///
    /// # Panics
    /// When the test command exported no broker, or the broker does not answer.
    pub async fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (Some(amqp), Some(admin)) = (variable(AMQP_URL_VARIABLE), variable(ADMIN_URL_VARIABLE))
        else {
            panic!(
                "{AMQP_URL_VARIABLE} and {ADMIN_URL_VARIABLE} are not set: run the tests with \
                 `cargo xtask test`, or start a broker with `cargo xtask services` first"
            );
        };
        // Unique among live tests: no two processes share an id at one time,
        // and a leftover of an earlier one is removed before use.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let vhost = format!("test-{}-{count}", std::process::id());
        let admin = Admin::new(&admin, &vhost).expect("the admin URL is a URL");
        admin.create_vhost().await.expect("the shared broker lives");
        Self {
            amqp_url: format!("{}/{vhost}", amqp.trim_end_matches('/')),
            admin,
        }
    }

    /// The URL of this virtual host.
    pub fn amqp_url(&self) -> &str {
        &self.amqp_url
    }

    /// The management API, looking at this virtual host.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }
}

impl Drop for SharedBroker {
    fn drop(&mut self) {
        let admin = self.admin.clone();
        // A thread, since a drop may run inside a runtime and cannot await.
        let dropped = thread::spawn(move || block_on(admin.delete_vhost())).join();
        match dropped {
            Ok(Ok(())) => {}
            // The broker may be gone with its virtual hosts; the test has
            // its verdict already.
            Ok(Err(error)) => complain(&format!("virtual host left behind: {error:#}")),
            Err(_) => complain("virtual host left behind: its removal panicked"),
        }
    }
}

/// Starts the node that many tests share; it ends when the value is dropped.
///
/// Export [`AMQP_URL_VARIABLE`] and [`ADMIN_URL_VARIABLE`] from it to the tests.
///
/// # Errors
/// When there is neither a local RabbitMQ nor a Docker engine, or it does not start.
pub async fn start_shared() -> Result<BrokerNode> {
    let node = BrokerNode::start(NodeOptions::default()).await;
    node.context("the shared broker does not start")
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests are configured by the command that runs them, not by settings"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[expect(clippy::print_stderr, reason = "a drop has no other way to be heard")]
fn complain(text: &str) {
    eprintln!("testkit: {text}");
}
