//! What a node starts from: its ports, its configuration, and the programs
//! that run it.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::timeout;

use super::{NodeOptions, variable};

/// One run of the control script, which starts an Erlang machine of its own.
const CONTROL_LIMIT: Duration = Duration::from_mins(1);
/// The image for machines without RabbitMQ: the newest of the oldest line
/// that this project supports and that still gets images.
const IMAGE: &str = "rabbitmq:3-management";

/// Where packages put the scripts, without the wrappers that change the user.
const SCRIPT_DIRECTORIES: [&str; 4] = [
    "/usr/lib/rabbitmq/bin",
    "/opt/rabbitmq/sbin",
    "/opt/homebrew/sbin",
    "/usr/local/sbin",
];

/// A single-threaded machine that does not spin when it has nothing to do: a
/// test's broker is idle most of the time, and there may be many.
pub(super) const ERLANG_ARGUMENTS: &str = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none";

#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) amqp: u16,
    pub(super) admin: u16,
    pub(super) mapper: u16,
    pub(super) distribution: u16,
}

impl Ports {
    pub(super) fn free() -> Result<Self> {
        // All are held until all are known, so that they differ.
        let held: Vec<TcpListener> = (0..4)
            .map(|_| TcpListener::bind(("127.0.0.1", 0)))
            .collect::<std::io::Result<_>>()?;
        let ports: Vec<u16> = held
            .iter()
            .map(|listener| listener.local_addr().map(|address| address.port()))
            .collect::<std::io::Result<_>>()?;
        match ports.as_slice() {
            &[amqp, admin, mapper, distribution] => Ok(Self {
                amqp,
                admin,
                mapper,
                distribution,
            }),
            _ => bail!("four ports were asked for"),
        }
    }
}

pub(super) fn write_configuration(
    directory: &Path,
    ports: Ports,
    options: &NodeOptions,
    local: bool,
) -> Result<()> {
    let mut config = vec![
        "log.console = true".to_owned(),
        "log.file = false".to_owned(),
        // Figures that tests wait for are at most this old.
        "collect_statistics_interval = 500".to_owned(),
        "vm_memory_high_watermark.absolute = 1GB".to_owned(),
        "disk_free_limit.absolute = 1MB".to_owned(),
        // A container sees its host's clients as strangers.
        "loopback_users.guest = false".to_owned(),
    ];
    if local {
        config.push(format!("listeners.tcp.1 = 127.0.0.1:{}", ports.amqp));
        config.push("management.tcp.ip = 127.0.0.1".to_owned());
        config.push(format!("management.tcp.port = {}", ports.admin));
        config.push("distribution.listener.interface = 127.0.0.1".to_owned());
    }
    config.extend(options.config.iter().cloned());
    fs::write(directory.join("rabbitmq.conf"), config.join("\n") + "\n")?;
    fs::write(directory.join("enabled_plugins"), "[rabbitmq_management].")?;
    // Quorum queues report their figures by a clock of their own, and the
    // management API collects figures as often as it keeps samples of them.
    let mut rabbit = vec!["{quorum_tick_interval, 500}".to_owned()];
    rabbit.extend(options.advanced.iter().cloned());
    let samples = "[{global, [{605, 1}]}, {basic, [{605, 1}]}, {detailed, [{605, 1}]}]";
    let advanced = format!(
        "[{{rabbit, [{}]}}, {{rabbitmq_management_agent, [{{sample_retention_policies, {samples}}}]}}].\n",
        rabbit.join(", ")
    );
    fs::write(directory.join("advanced.config"), advanced)?;
    Ok(())
}

/// Whether RabbitMQ is installed here, so that a node needs no Docker engine.
pub fn is_installed() -> bool {
    find_scripts().is_some()
}

pub(super) fn find_scripts() -> Option<PathBuf> {
    let path = variable("PATH").unwrap_or_default();
    // A distribution's wrapper insists on a user of its own; the scripts
    // behind it do not.
    let is_plain = |directory: &Path| {
        let script = directory.join("rabbitmq-server").canonicalize();
        script.is_ok_and(|script| !script.ends_with("rabbitmq-script-wrapper"))
    };
    SCRIPT_DIRECTORIES
        .iter()
        .map(PathBuf::from)
        .chain(std::env::split_paths(&path))
        .find(|directory| is_plain(directory))
}

/// Erlang's port mapper, for this node alone. The server would start one that
/// outlives it.
pub(super) fn start_mapper(ports: Ports) -> Result<Child> {
    Command::new("epmd")
        .args(["-port", &ports.mapper.to_string(), "-address", "127.0.0.1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("epmd, Erlang's port mapper, does not run")
}

pub(super) async fn create_container(directory: &Path, ports: Ports) -> Result<String> {
    let container = format!("fencepost-broker-{}", ports.amqp);
    let mut arguments = vec![
        "create".to_owned(),
        format!("--name={container}"),
        format!("--publish=127.0.0.1:{}:5672", ports.amqp),
        format!("--publish=127.0.0.1:{}:15672", ports.admin),
        format!("--env=RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS={ERLANG_ARGUMENTS}"),
        format!(
            "--volume={}:/etc/rabbitmq/conf.d/90-test.conf:ro",
            directory.join("rabbitmq.conf").display()
        ),
        format!(
            "--volume={}:/etc/rabbitmq/advanced.config:ro",
            directory.join("advanced.config").display()
        ),
    ];
    arguments.push(IMAGE.to_owned());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let created = docker(&arguments).await;
    created.context(
        "RabbitMQ is not installed here and Docker cannot stand in: \
         install rabbitmq-server, or start a Docker engine",
    )?;
    Ok(container)
}

pub(super) async fn docker(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("docker");
    command.args(arguments);
    run(command).await
}

pub(super) async fn run(mut command: Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null());
    let mut command = tokio::process::Command::from(command);
    let output = timeout(CONTROL_LIMIT, command.kill_on_drop(true).output())
        .await
        .with_context(|| format!("{name} did not end within {CONTROL_LIMIT:?}"))?
        .with_context(|| format!("{name} does not run"))?;
    if !output.status.success() {
        bail!(
            "{name} failed ({}): {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
