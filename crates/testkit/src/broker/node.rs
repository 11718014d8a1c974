//! A private RabbitMQ node: started, killed, frozen and configured by a test.
//!
//! Runs the locally installed server; where there is none, a container of the
//! official image with the same configuration. A local node has its own
//! directory, ports, cookie and port mapper, so nodes of many tests live side
//! by side. It ends with the value, and with the process that holds it.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use super::launch::{
    ERLANG_ARGUMENTS, Ports, create_container, docker, find_scripts, run, start_mapper,
    write_configuration,
};
use super::{Admin, complain};

/// Some five seconds on an idle machine; more where tests share two cores.
const START_LIMIT: Duration = Duration::from_mins(2);
/// A node with quorum queues takes a while to leave in order.
const STOP_LIMIT: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(100);

/// Ends a local server with its standard input, which the test's process holds.
const CORD_ARGUMENTS: &str = "-noshell -eval spawn(fun()->io:get_line([]),erlang:halt()end)";

/// How a node differs from the usual.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// Lines for `rabbitmq.conf`.
    pub config: Vec<String>,
    /// Erlang terms for the `rabbit` section of `advanced.config`, such as
    /// `{channel_tick_interval, 500}`, for what `rabbitmq.conf` cannot say.
    pub advanced: Vec<String>,
}

/// A broker of its own; killed and removed when dropped.
#[derive(Debug)]
pub struct BrokerNode {
    runner: Runner,
    ports: Ports,
    directory: TempDir,
}

#[derive(Debug)]
enum Runner {
    Local {
        scripts: PathBuf,
        mapper: Child,
        server: Option<Child>,
    },
    Docker {
        container: String,
    },
}

impl BrokerNode {
    /// Starts a node and waits until it takes clients.
    ///
    /// # Errors
    /// When there is neither a local RabbitMQ nor a Docker engine, or it does
    /// not start in time; the text holds the end of its log.
    pub async fn start(options: NodeOptions) -> Result<Self> {
        let directory = TempDir::with_prefix("fencepost-broker-")?;
        let ports = Ports::free()?;
        let scripts = find_scripts();
        write_configuration(directory.path(), ports, &options, scripts.is_some())?;
        let runner = match scripts {
            Some(scripts) => Runner::Local {
                scripts,
                mapper: start_mapper(ports)?,
                server: None,
            },
            None => Runner::Docker {
                container: create_container(directory.path(), ports).await?,
            },
        };
        let mut node = Self {
            runner,
            ports,
            directory,
        };
        node.boot().await?;
        Ok(node)
    }

    /// Where clients connect to: the default virtual host, as the default user.
    pub fn amqp_url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.ports.amqp)
    }

    /// The socket that clients connect to, for a proxy in front of it.
    pub fn amqp_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.amqp))
    }

    /// The URL of the management API.
    pub fn admin_url(&self) -> String {
        format!("http://guest:guest@127.0.0.1:{}", self.ports.admin)
    }

    /// The management API, looking at the default virtual host.
    pub fn admin(&self) -> Admin {
        Admin::new(&self.admin_url(), "/").expect("a well-formed URL")
    }

    /// Kills the node on the spot, as a power cut would, once its list of
    /// queues is on disk: RabbitMQ 3.10 writes that list late, and a quorum
    /// queue that is missing from it never gets a leader again.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn kill_9(&mut self) -> Result<()> {
        self.control(&["eval", "lists:foreach(fun dets:sync/1, dets:all())."])
            .await?;
        match &mut self.runner {
            Runner::Local { server, .. } => {
                let mut server = server.take().context("the node is not running")?;
                server.kill()?;
                server.wait()?;
                Ok(())
            }
            Runner::Docker { container } => docker(&["kill", container.as_str()]).await,
        }
    }

    /// Stops the node in order: clients are told, data is flushed.
    ///
    /// # Errors
    /// When it is not running or does not end in time.
    pub async fn stop(&mut self) -> Result<()> {
        match &mut self.runner {
            Runner::Local { server, .. } => {
                let mut server = server.take().context("the node is not running")?;
                kill_process(pid(&server), Signal::TERM)?;
                let ended = timeout(STOP_LIMIT, async {
                    while server.try_wait()?.is_none() {
                        sleep(POLL).await;
                    }
                    anyhow::Ok(())
                });
                if let Ok(ended) = ended.await {
                    return ended;
                }
                server.kill()?;
                server.wait()?;
                bail!("the node did not stop within {STOP_LIMIT:?} and was killed");
            }
            Runner::Docker { container } => docker(&["stop", container.as_str()]).await,
        }
    }

    /// Starts a node that was killed or stopped, with the data it had, and
    /// waits until it takes clients.
    ///
    /// # Errors
    /// When it does not start in time.
    pub async fn restart(&mut self) -> Result<()> {
        self.boot().await
    }

    /// Freezes the node: its sockets stay open and say nothing.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP, "pause").await
    }

    /// Ends a [`pause`](Self::pause).
    ///
    /// # Errors
    /// When it is not running.
    pub async fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT, "unpause").await
    }

    /// Makes the node believe that its disk is full: publishers are blocked.
    ///
    /// # Errors
    /// When the control script fails.
    pub async fn raise_alarm(&self) -> Result<()> {
        // No disk has as much free.
        self.control(&["set_disk_free_limit", "1000000GB"]).await
    }

    /// Ends what [`raise_alarm`](Self::raise_alarm) began.
    ///
    /// # Errors
    /// When the control script fails.
    pub async fn clear_alarm(&self) -> Result<()> {
        self.control(&["set_disk_free_limit", "1MB"]).await
    }

    /// Runs `rabbitmqctl` against the node.
    ///
    /// # Errors
    /// When it fails; the text holds what it printed.
    pub async fn control(&self, arguments: &[&str]) -> Result<()> {
        match &self.runner {
            Runner::Local { scripts, .. } => {
                let mut command = self.script(scripts, "rabbitmqctl");
                command.args(arguments);
                run(command).await
            }
            Runner::Docker { container } => {
                docker(&[&["exec", container, "rabbitmqctl"], arguments].concat()).await
            }
        }
    }

    async fn signal(&self, signal: Signal, docker_verb: &str) -> Result<()> {
        match &self.runner {
            Runner::Local { server, .. } => {
                let server = server.as_ref().context("the node is not running")?;
                Ok(kill_process(pid(server), signal)?)
            }
            Runner::Docker { container } => docker(&[docker_verb, container.as_str()]).await,
        }
    }

    async fn boot(&mut self) -> Result<()> {
        let log = self.directory.path().join("server.log");
        let start = match &self.runner {
            Runner::Local { scripts, .. } => Some(self.script(scripts, "rabbitmq-server")),
            Runner::Docker { .. } => None,
        };
        match (&mut self.runner, start) {
            (Runner::Local { server, .. }, Some(mut start)) => {
                let log = File::options().create(true).append(true).open(&log)?;
                // The scripts replace themselves by the server, so this
                // process is the server, and its input the cord between us.
                start
                    .stdin(Stdio::piped())
                    .stdout(log.try_clone()?)
                    .stderr(log);
                *server = Some(start.spawn().context("rabbitmq-server does not run")?);
            }
            (Runner::Docker { container }, _) => docker(&["start", container.as_str()]).await?,
            (Runner::Local { .. }, None) => bail!("a local node has a start script"),
        }
        self.wait_until_ready(&log).await
    }

    async fn wait_until_ready(&mut self, log: &Path) -> Result<()> {
        let admin = self.admin();
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let port = match &self.runner {
                Runner::Local { .. } => self.ports.amqp,
                Runner::Docker { .. } => 5672,
            };
            let Err(error) = admin.is_listening(port).await else {
                return Ok(());
            };
            let ended = match &mut self.runner {
                Runner::Local { server, .. } => match server {
                    Some(server) => server.try_wait()?,
                    None => None,
                },
                Runner::Docker { .. } => None,
            };
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(log).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(20).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                return Err(error.context(format!(
                    "the node is not ready; its log ends:\n{}",
                    tail.join("\n")
                )));
            }
            sleep(POLL).await;
        }
    }

    /// One of RabbitMQ's scripts, in the node's own surroundings.
    fn script(&self, scripts: &Path, name: &str) -> Command {
        let directory = self.directory.path();
        let mut command = Command::new(scripts.join(name));
        command
            .current_dir(directory)
            // The Erlang cookie is kept in the home directory.
            .env("HOME", directory)
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_EPMD_PORT", self.ports.mapper.to_string())
            .env(
                "RABBITMQ_NODENAME",
                format!("fencepost-{}@localhost", self.ports.amqp),
            )
            .env("RABBITMQ_DIST_PORT", self.ports.distribution.to_string())
            .env("RABBITMQ_MNESIA_BASE", directory.join("data"))
            .env("RABBITMQ_LOG_BASE", directory.join("log"))
            .env("RABBITMQ_CONFIG_FILE", directory.join("rabbitmq.conf"))
            .env(
                "RABBITMQ_ADVANCED_CONFIG_FILE",
                directory.join("advanced.config"),
            )
            .env("RABBITMQ_GENERATED_CONFIG_DIR", directory.join("generated"))
            .env(
                "RABBITMQ_ENABLED_PLUGINS_FILE",
                directory.join("enabled_plugins"),
            )
            .env("RABBITMQ_CONF_ENV_FILE", directory.join("no-environment"))
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                format!("{ERLANG_ARGUMENTS} {CORD_ARGUMENTS}"),
            )
            // Makes the start script become the server instead of its parent.
            .env("RABBITMQ_ALLOW_INPUT", "1");
        command
    }
}

impl Drop for BrokerNode {
    fn drop(&mut self) {
        let ended = match &mut self.runner {
            Runner::Local { mapper, server, .. } => {
                let processes = server.iter_mut().chain([mapper]);
                processes
                    .map(|process| process.kill().and_then(|()| process.wait().map(|_| ())))
                    .fold(Ok(()), std::io::Result::and)
            }
            Runner::Docker { container } => Command::new("docker")
                .args(["rm", "--force", "--volumes", container])
                .stdout(Stdio::null())
                .status()
                .map(|_| ()),
        };
        if let Err(error) = ended {
            complain(&format!("a broker node may be left behind: {error}"));
        }
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{eventually, require};
    use serde_json::json;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_node_is_a_broker_that_survives_its_kill() {
        let mut node = BrokerNode::start(NodeOptions::default()).await.unwrap();
        let admin = node.admin();
        admin
            .declare_queue("kept", true, json!({"x-queue-type": "quorum"}))
            .await
            .unwrap();
        admin.declare_queue("lost", false, json!({})).await.unwrap();
        assert!(admin.publish("amq.default", "kept", "hello").await.unwrap());
        assert!(
            !admin
                .publish("amq.default", "nowhere", "hello")
                .await
                .unwrap()
        );

        node.kill_9().await.unwrap();
        assert!(admin.queue("kept").await.is_err(), "a dead node answered");
        node.restart().await.unwrap();
        assert_eq!(admin.queue("lost").await.unwrap(), None);
        eventually(LIMIT, "the message is there again", async || {
            let queue = admin.queue("kept").await?.context("no queue")?;
            require(queue.ready == 1, anyhow::anyhow!("{queue:?}"))
        })
        .await;
        assert_eq!(admin.messages("kept", 5).await.unwrap(), ["hello"]);
        admin.purge("kept").await.unwrap();
        eventually(LIMIT, "the queue is empty", async || {
            let queue = admin.queue("kept").await?.context("no queue")?;
            require(
                queue.ready == 0 && queue.kind == "quorum",
                anyhow::anyhow!("{queue:?}"),
            )
        })
        .await;
        node.raise_alarm().await.unwrap();
        node.clear_alarm().await.unwrap();
        node.stop().await.unwrap();
    }
}
