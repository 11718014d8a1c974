//! RabbitMQ for the tests, by whatever the machine offers.
//!
//! In this order: the one that is named, the installed server, a container,
//! Debian's package. What was named and does not answer is an error: another
//! broker in its place would test something else. What was started ends with
//! the value; the package stays.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use fencepost_testkit::broker::{
    ADMIN_URL_VARIABLE, AMQP_URL_VARIABLE, Admin, BrokerNode, is_installed, start_shared,
};
use reqwest::Url;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

use crate::process::{Signals, Stopped};

/// A broker on this machine or beside it answers within milliseconds.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Ports that RabbitMQ uses when it is not told otherwise.
const AMQP_PORT: u16 = 5672;
const ADMIN_PORT: u16 = 15672;

/// Installs RabbitMQ without starting the machine's own node: a policy says
/// so to the package, unless the machine has one.
const INSTALL: &str = r#"
set -e
policy=/usr/sbin/policy-rc.d
trap 'exit 1' HUP INT TERM
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt="apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0"
$apt update
$apt install --yes --no-install-recommends rabbitmq-server
"#;

/// A broker that exists already.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Given {
    /// A running RabbitMQ to use, without a virtual host: `amqp://user:password@host:port`
    #[arg(long, value_name = "URL", env = AMQP_URL_VARIABLE, hide_env_values = true)]
    amqp_url: Option<String>,
    /// Its management API; by default on the same host, with the same user, at port 15672
    #[arg(long, value_name = "URL", env = ADMIN_URL_VARIABLE, hide_env_values = true)]
    amqp_admin_url: Option<String>,
}

/// A broker that answers.
#[derive(Debug)]
pub(crate) struct Broker {
    amqp_url: String,
    admin_url: String,
    /// Held, so that it ends with this.
    _started: Option<BrokerNode>,
}

impl Broker {
    /// Finds a broker or starts one.
    ///
    /// # Errors
    /// When the named one does not answer, or none can be had; the text says
    /// what was tried.
    pub(crate) async fn find_or_start(given: &Given, signals: &mut Signals) -> Result<Self> {
        if let Some(amqp) = given.amqp_url.as_deref().filter(|url| !url.is_empty()) {
            let admin = given
                .amqp_admin_url
                .as_deref()
                .filter(|url| !url.is_empty());
            let found = signals.unless_stopped(Self::reach(amqp, admin)).await?;
            eprintln!("RabbitMQ: the one of {AMQP_URL_VARIABLE}");
            return Ok(found);
        }
        if is_installed() {
            eprintln!("RabbitMQ: starting the installed server");
            return Self::start(signals).await;
        }
        let mut tried = "rabbitmq-server is not installed".to_owned();
        // Asks the engine, which the client alone would not.
        let mut ask = Command::new("docker");
        ask.args(["version", "--format", "{{.Server.Version}}"]);
        if signals.answers(ask).await? {
            eprintln!("RabbitMQ: starting a container, as {tried}");
            match Self::start(signals).await {
                Err(error) if !error.is::<Stopped>() => {
                    tried = format!("{tried}; a container: {error:#}");
                }
                ended => return ended,
            }
        } else {
            tried.push_str("; no Docker engine answers");
        }
        let Some(install) = installer(signals).await? else {
            bail!(
                "there is no RabbitMQ and no way to one: {tried}; Debian's package needs apt-get \
                 and root (or sudo without a password). Install rabbitmq-server, start a Docker \
                 engine, or set {AMQP_URL_VARIABLE}"
            );
        };
        eprintln!("RabbitMQ: installing Debian's package, as {tried}");
        let installed = signals.run(install).await;
        installed.context("Debian's package rabbitmq-server does not install")?;
        Self::start(signals).await
    }

    /// What tests need to know, as environment variables.
    pub(crate) fn exports(&self) -> [(&'static str, &str); 2] {
        [
            (AMQP_URL_VARIABLE, &self.amqp_url),
            (ADMIN_URL_VARIABLE, &self.admin_url),
        ]
    }

    /// Lines for a shell: the broker for Fencepost itself, and for the tests.
    pub(crate) fn shell_exports(&self) -> String {
        let mut lines = vec![format!("export FENCEPOST_AMQP_URL={}/%2f", self.amqp_url)];
        let exports = self.exports().into_iter();
        lines.extend(exports.map(|(name, value)| format!("export {name}={value}")));
        lines.join("\n")
    }

    async fn start(signals: &mut Signals) -> Result<Self> {
        let node = signals.unless_stopped(start_shared()).await?;
        Ok(Self {
            // Without the path: each test adds a virtual host of its own.
            amqp_url: format!("amqp://guest:guest@{}", node.amqp_address()),
            admin_url: node.admin_url(),
            _started: Some(node),
        })
    }

    async fn reach(amqp: &str, admin: Option<&str>) -> Result<Self> {
        let (address, beside) = read_url(amqp)?;
        let admin_url = admin.map_or(beside, str::to_owned);
        let connected = timeout(CONNECT_LIMIT, TcpStream::connect(&address)).await;
        connected
            .map_err(anyhow::Error::from)
            .and_then(|connected| Ok(connected?))
            .with_context(|| format!("{AMQP_URL_VARIABLE}: nothing answers at {address}"))?;
        let admin = Admin::new(&admin_url, "/").context(ADMIN_URL_VARIABLE)?;
        admin.connections().await.with_context(|| {
            format!("{ADMIN_URL_VARIABLE}: the management API of {address} does not answer; is its plugin enabled?")
        })?;
        Ok(Self {
            amqp_url: amqp.trim_end_matches('/').to_owned(),
            admin_url,
            _started: None,
        })
    }
}

/// The address behind an AMQP URL, and the URL of the management API beside it.
fn read_url(amqp: &str) -> Result<(String, String)> {
    // The URL itself is in no error: it may hold a password.
    let url = Url::parse(amqp).with_context(|| format!("{AMQP_URL_VARIABLE} is not a URL"))?;
    let host = url.host_str().filter(|host| !host.is_empty());
    let (Some(host), "amqp") = (host, url.scheme()) else {
        bail!("{AMQP_URL_VARIABLE} is not of the form amqp://user:password@host:port");
    };
    if !matches!(url.path(), "" | "/") {
        bail!("{AMQP_URL_VARIABLE} names a virtual host: leave it out, each test makes its own");
    }
    let (user, password) = match (url.username(), url.password()) {
        ("", None) => ("guest", "guest"),
        (user, password) => (user, password.unwrap_or_default()),
    };
    Ok((
        format!("{host}:{}", url.port().unwrap_or(AMQP_PORT)),
        format!("http://{user}:{password}@{host}:{ADMIN_PORT}"),
    ))
}

/// The command that installs RabbitMQ, where there is one.
async fn installer(signals: &mut Signals) -> Result<Option<Command>> {
    let mut ask = Command::new("apt-get");
    ask.arg("--version");
    if !signals.answers(ask).await? {
        return Ok(None);
    }
    let mut install = Command::new("sh");
    if !rustix::process::geteuid().is_root() {
        let mut ask = Command::new("sudo");
        ask.args(["-n", "true"]);
        if !signals.answers(ask).await? {
            return Ok(None);
        }
        install = Command::new("sudo");
        install.args(["-n", "sh"]);
    }
    install.args(["-c", INSTALL]);
    Ok(Some(install))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_management_api_is_looked_for_beside_the_broker() {
        assert_eq!(
            read_url("amqp://me:secret@mq.example:5673/").unwrap(),
            (
                "mq.example:5673".to_owned(),
                "http://me:secret@mq.example:15672".to_owned()
            )
        );
        assert_eq!(
            read_url("amqp://127.0.0.1").unwrap(),
            (
                "127.0.0.1:5672".to_owned(),
                "http://guest:guest@127.0.0.1:15672".to_owned()
            )
        );
    }

    #[test]
    fn a_url_that_cannot_serve_is_refused_without_its_password() {
        for (url, says) in [
            ("amqp://me:secret@host/vhost", "names a virtual host"),
            ("http://me:secret@host", "is not of the form amqp://"),
            ("me:secret", "is not of the form amqp://"),
            ("secret", "is not a URL"),
        ] {
            let error = format!("{:#}", read_url(url).unwrap_err());
            assert!(error.contains(says), "{url}: {error}");
            assert!(!error.contains("secret"), "{url}: {error}");
        }
    }

    #[tokio::test]
    async fn a_named_broker_that_does_not_answer_is_not_replaced() {
        let given = Given {
            // Port 1 is reserved, and nothing listens there.
            amqp_url: Some("amqp://me:secret@127.0.0.1:1".to_owned()),
            amqp_admin_url: None,
        };
        let mut signals = Signals::catch().unwrap();
        let error = Broker::find_or_start(&given, &mut signals)
            .await
            .unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("nothing answers at 127.0.0.1:1"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
