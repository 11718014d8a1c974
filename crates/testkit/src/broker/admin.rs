//! The management API: what a broker says of itself, and an operator's hand.
//!
//! Figures lag behind by the node's statistics interval, so they are polled
//! for with [`crate::wait::eventually`], never read once.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use reqwest::{Method, StatusCode, Url};
use serde_json::{Value, json};

/// The API answers in milliseconds; a node that is starting or dying may hang.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// One virtual host, seen through the management API.
#[derive(Debug, Clone)]
pub struct Admin {
    http: reqwest::Client,
    base: Url,
    vhost: String,
}

/// A queue as the broker reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Messages that wait for a consumer.
    pub ready: u64,
    /// Messages delivered and not settled.
    pub unacked: u64,
    /// Consumers.
    pub consumers: u64,
    /// `classic` or `quorum`.
    pub kind: String,
}

/// A channel as the broker reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// The name its connection's client gave itself.
    pub client: String,
    /// Whether it is in confirm mode.
    pub confirm: bool,
    /// Consumers on it.
    pub consumers: u64,
    /// Messages delivered on it and not settled.
    pub unacked: u64,
}

/// A connection as the broker reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The broker's name for it.
    pub name: String,
    /// The name its client gave itself.
    pub client: String,
    /// `running`, `blocking`, `blocked` …
    pub state: String,
    /// The negotiated heartbeat in seconds.
    pub heartbeat_seconds: u64,
}

impl Admin {
    /// Looks at `vhost` through the API at `base`, which carries user and password.
    ///
    /// # Errors
    /// When `base` is not a URL.
    pub fn new(base: &str, vhost: &str) -> Result<Self> {
        Ok(Self {
            // A connection kept for later belongs to one test's runtime, and
            // the last request of a test comes from another.
            http: reqwest::Client::builder()
                .timeout(REQUEST_LIMIT)
                .pool_max_idle_per_host(0)
                .build()?,
            base: Url::parse(base)?,
            vhost: vhost.to_owned(),
        })
    }

    /// Creates the virtual host, empty even if one of the name was left behind.
    ///
    /// # Errors
    /// When the broker does not answer or refuses.
    pub async fn create_vhost(&self) -> Result<()> {
        self.delete_vhost().await?;
        let user = self.base.username().to_owned();
        self.send(Method::PUT, &["vhosts", &self.vhost], None)
            .await?;
        let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
        let path = ["permissions", &self.vhost, &user];
        self.send(Method::PUT, &path, Some(all)).await?;
        Ok(())
    }

    /// Removes the virtual host with all that is in it.
    ///
    /// # Errors
    /// When the broker does not answer or refuses.
    pub async fn delete_vhost(&self) -> Result<()> {
        self.send(Method::DELETE, &["vhosts", &self.vhost], None)
            .await?;
        Ok(())
    }

    /// A queue, or `None` when there is none of this name.
    ///
    /// # Errors
    /// When the broker does not answer, or has no figures of the queue yet.
    pub async fn queue(&self, name: &str) -> Result<Option<Queue>> {
        let path = ["queues", &self.vhost, name];
        let found = self.send(Method::GET, &path, None).await?;
        let Some(queue) = found else {
            return Ok(None);
        };
        let figure = |field: &str| {
            let found = queue.get(field).and_then(Value::as_u64);
            found.with_context(|| format!("the broker has no {field} of {name} yet"))
        };
        Ok(Some(Queue {
            ready: figure("messages_ready")?,
            unacked: figure("messages_unacknowledged")?,
            consumers: figure("consumers")?,
            kind: text(&queue, "type"),
        }))
    }

    /// Declares a durable or transient queue with the given arguments.
    ///
    /// # Errors
    /// When the broker does not answer or refuses.
    pub async fn declare_queue(&self, name: &str, durable: bool, arguments: Value) -> Result<()> {
        let queue = json!({"durable": durable, "auto_delete": false, "arguments": arguments});
        let path = ["queues", &self.vhost, name];
        self.send(Method::PUT, &path, Some(queue)).await?;
        Ok(())
    }

    /// Removes a queue; it is no error when there is none.
    ///
    /// # Errors
    /// When the broker does not answer or refuses.
    pub async fn delete_queue(&self, name: &str) -> Result<()> {
        self.send(Method::DELETE, &["queues", &self.vhost, name], None)
            .await?;
        Ok(())
    }

    /// Removes an exchange; it is no error when there is none.
    ///
    /// # Errors
    /// When the broker does not answer or refuses.
    pub async fn delete_exchange(&self, name: &str) -> Result<()> {
        let path = ["exchanges", &self.vhost, name];
        self.send(Method::DELETE, &path, None).await?;
        Ok(())
    }

    /// Throws away the messages that are ready in a queue.
    ///
    /// # Errors
    /// When the broker does not answer or refuses.
    pub async fn purge(&self, name: &str) -> Result<()> {
        let path = ["queues", &self.vhost, name, "contents"];
        self.send(Method::DELETE, &path, None).await?;
        Ok(())
    }

    /// The bodies of up to `count` messages of a queue, which stay in it.
    ///
    /// # Errors
    /// When the broker does not answer or has no such queue.
    pub async fn messages(&self, name: &str, count: u32) -> Result<Vec<String>> {
        let ask = json!({"count": count, "ackmode": "ack_requeue_true", "encoding": "auto"});
        let path = ["queues", &self.vhost, name, "get"];
        let found = self.send(Method::POST, &path, Some(ask)).await?;
        let found = found.with_context(|| format!("there is no queue {name}"))?;
        Ok(list(found).iter().map(|m| text(m, "payload")).collect())
    }

    /// Publishes a message to an exchange; true when it was routed to a queue.
    ///
    /// # Errors
    /// When the broker does not answer or has no such exchange.
    pub async fn publish(&self, exchange: &str, routing_key: &str, body: &str) -> Result<bool> {
        let message = json!({"properties": {}, "routing_key": routing_key,
            "payload": body, "payload_encoding": "string"});
        let path = ["exchanges", &self.vhost, exchange, "publish"];
        let answer = self.send(Method::POST, &path, Some(message)).await?;
        let answer = answer.with_context(|| format!("there is no exchange {exchange}"))?;
        Ok(flag(&answer, "routed"))
    }

    /// The connections into this virtual host.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn connections(&self) -> Result<Vec<Connection>> {
        let path = ["vhosts", &self.vhost, "connections"];
        let found = self.send(Method::GET, &path, None).await?;
        Ok(list(found.unwrap_or_default())
            .iter()
            // An entry without a name is one whose details have not arrived yet.
            .filter(|connection| !text(connection, "name").is_empty())
            .map(|connection| Connection {
                name: text(connection, "name"),
                client: text(connection, "user_provided_name"),
                state: text(connection, "state"),
                heartbeat_seconds: number(connection, "timeout"),
            })
            .collect())
    }

    /// Closes, as an operator would, the connections of clients with this name;
    /// says how many there were.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn close_connections(&self, client: &str) -> Result<usize> {
        let mut closed = 0;
        for connection in self.connections().await? {
            if connection.client == client {
                let path = ["connections", &connection.name];
                self.send(Method::DELETE, &path, None).await?;
                closed += 1;
            }
        }
        Ok(closed)
    }

    /// The channels in this virtual host.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn channels(&self) -> Result<Vec<Channel>> {
        let path = ["vhosts", &self.vhost, "channels"];
        let found = self.send(Method::GET, &path, None).await?;
        let clients = self.connections().await?;
        let client_of = |channel: &Value| {
            let name = channel.get("connection_details").map(|of| text(of, "name"));
            let found = clients
                .iter()
                .find(|connection| Some(&connection.name) == name.as_ref());
            found.map(|connection| connection.client.clone())
        };
        Ok(list(found.unwrap_or_default())
            .iter()
            .map(|channel| Channel {
                client: client_of(channel).unwrap_or_default(),
                confirm: flag(channel, "confirm"),
                consumers: number(channel, "consumer_count"),
                unacked: number(channel, "messages_unacknowledged"),
            })
            .collect())
    }

    /// Whether the node accepts clients on its AMQP port.
    pub(super) async fn is_listening(&self, port: u16) -> Result<()> {
        let port = port.to_string();
        let path = ["health", "checks", "port-listener", &port];
        let answer = self.send(Method::GET, &path, None).await?;
        answer
            .map(|_| ())
            .context("the node does not know its port")
    }

    /// One request; `None` for 404 and for an answer without content.
    async fn send(
        &self,
        method: Method,
        path: &[&str],
        body: Option<Value>,
    ) -> Result<Option<Value>> {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .map_err(|()| anyhow!("the admin URL has no path"))?
            .push("api")
            .extend(path);
        let asked = format!("{method} {}", url.path());
        let mut request = self.http.request(method, url);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.map_err(reqwest::Error::without_url)?;
        let status = answer.status();
        let content = answer.text().await.map_err(reqwest::Error::without_url)?;
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !status.is_success() {
            bail!("{asked} answered {status}: {content}");
        }
        Ok(serde_json::from_str(&content).ok())
    }
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Vec::new()
        }
    }
}

fn number(value: &Value, field: &str) -> u64 {
    value.get(field).and_then(Value::as_u64).unwrap_or_default()
}

fn flag(value: &Value, field: &str) -> bool {
    let found = value.get(field).and_then(Value::as_bool);
    found.unwrap_or_default()
}

fn text(value: &Value, field: &str) -> String {
    let found = value.get(field).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}
