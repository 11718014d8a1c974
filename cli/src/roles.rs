//! The roles, put together from their parts.
//!
//! Owns what each process opens, in which order it starts and ends. A process
//! ends when it is asked to: its parts finish what they have in hand, then the
//! store closes.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use fencepost_api::{Api, ApiConfig};
use fencepost_broker::{
    AmqpUrl, BrokerState, ConnectionOptions, ConsumerOptions, Publish as _, Publisher,
    PublisherOptions, Topology,
};
use fencepost_core::id::{IdSource, QueueName, WorkerId};
use fencepost_core::outbox::Redispatch;
use fencepost_relay::{
    Counters, Reaper, ReaperConfig, Relay, RelayConfig, RelayState, Retention, RetentionConfig,
};
use fencepost_service::health::{self, Health};
use fencepost_service::settings::Settings;
use fencepost_service::shutdown::Shutdown;
use fencepost_service::system::{SystemClock, SystemIds};
use fencepost_store::blobs::{Blobs, S3Settings};
use fencepost_store::{OpenOptions, Store};
use fencepost_worker::probe::Prober;
use fencepost_worker::source::{Amqp, Poll, Source};
use fencepost_worker::{IN_HAND_PER_SLOT, Worker};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::commands::keys;
use crate::exit::{Exit, Failed};
use crate::handlers;
use crate::output;

fn bad_setting(key: &str, found: &str, expected: &str) -> anyhow::Error {
    Failed::new(
        Exit::BadConfig,
        format!("setting `{key}`: found {found}, expected {expected}"),
    )
    .into()
}

/// Where the SQLite file is.
pub(crate) fn database_path(settings: &Settings) -> anyhow::Result<PathBuf> {
    let Some(url) = &settings.database_url else {
        return Ok(settings.data_dir.join("fencepost.db"));
    };
    match url.expose().strip_prefix("sqlite:") {
        Some(path) if !path.is_empty() => Ok(path.strip_prefix("//").unwrap_or(path).into()),
        _ => Err(bad_setting(
            "database_url",
            &format!("`{url}`"),
            "`sqlite:` and a path",
        )),
    }
}

/// Where `up` writes the first key, and the command line finds it.
pub(crate) fn first_key_file(settings: &Settings) -> PathBuf {
    settings.data_dir.join("dev.key")
}

/// Opens the store, its schema brought up to date.
pub(crate) async fn open(settings: &Settings) -> anyhow::Result<Store> {
    let path = database_path(settings)?;
    let options = OpenOptions {
        path: path.clone(),
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        allow_network_filesystem: settings.allow_network_filesystem,
        wake_poll: settings.wake_poll,
    };
    Store::open(options)
        .await
        .with_context(|| format!("opening {}", path.display()))
}

fn open_blobs(settings: &Settings) -> anyhow::Result<Blobs> {
    let Some(url) = &settings.blobs.url else {
        let directory = settings.data_dir.join("blobs");
        return Blobs::local(&directory)
            .with_context(|| format!("opening {}", directory.display()));
    };
    let place = url
        .strip_prefix("s3://")
        .ok_or_else(|| bad_setting("blobs.url", &format!("`{url}`"), "`s3://bucket/prefix`"))?;
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    let s3 = &settings.blobs;
    let missing = |key: &str| bad_setting(key, "nothing", "the bucket's credential");
    let id = s3
        .s3_access_key_id
        .clone()
        .ok_or_else(|| missing("blobs.s3_access_key_id"))?;
    let secret = s3
        .s3_secret_access_key
        .as_ref()
        .ok_or_else(|| missing("blobs.s3_secret_access_key"))?;
    let settings = S3Settings {
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        region: s3.s3_region.clone(),
        endpoint: s3.s3_endpoint.clone(),
        access_key_id: id,
        secret_access_key: secret.expose().to_owned(),
        allow_http: s3.s3_allow_http,
    };
    Blobs::s3(&settings).context("opening the blob storage")
}

/// A name for one life of this process.
fn life(role: &str) -> anyhow::Result<WorkerId> {
    let unique = SystemIds.uuid().as_simple().to_string();
    let name = format!("{role}@{}-{}", host(), unique.get(20..).unwrap_or(&unique));
    WorkerId::new(name).context("naming this process")
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name
        .trim()
        .chars()
        .filter(char::is_ascii_graphic)
        .take(64)
        .collect();
    if name.is_empty() {
        "host".to_owned()
    } else {
        name
    }
}

fn connection(settings: &Settings, role: &str) -> anyhow::Result<Option<ConnectionOptions>> {
    let Some(url) = &settings.amqp_url else {
        return Ok(None);
    };
    let parsed: AmqpUrl =
        url.expose()
            .parse()
            .map_err(|error: fencepost_broker::BrokerError| {
                bad_setting("amqp_url", &format!("`{url}`"), &error.to_string())
            })?;
    let mut options = ConnectionOptions::new(parsed, format!("fencepost-{role}@{}", host()));
    options.heartbeat = settings.amqp.heartbeat;
    options.reconnect_initial = settings.amqp.reconnect_initial;
    options.reconnect_max = settings.amqp.reconnect_max;
    Ok(Some(options))
}

/// Follows a state that others change, for readiness.
async fn follow<T: Clone>(
    mut states: watch::Receiver<T>,
    health: Health,
    part: &'static str,
    fault: impl Fn(&T) -> Option<String>,
) {
    loop {
        let state = states.borrow_and_update().clone();
        match fault(&state) {
            None => health.ready(part),
            Some(why) => health.not_ready(part, why),
        }
        if states.changed().await.is_err() {
            return;
        }
    }
}

fn broker_fault(state: &BrokerState) -> Option<String> {
    (!state.is_ready()).then(|| state.to_string())
}

/// A process while it runs: its parts, and how it ends.
struct Process {
    store: Store,
    health: Health,
    shutdown: Shutdown,
    /// Parts that finish what they have in hand when the end is asked for.
    parts: JoinSet<()>,
    /// Helpers that are simply dropped at the end.
    helpers: JoinSet<()>,
}

impl Process {
    async fn start(settings: &Settings) -> anyhow::Result<Self> {
        let shutdown = Shutdown::install().context("installing signal handlers")?;
        let store = open(settings).await?;
        let health = Health::default();
        let mut process = Self {
            store,
            health,
            shutdown,
            parts: JoinSet::new(),
            helpers: JoinSet::new(),
        };
        if let Some(address) = &settings.health_listen {
            let listener = bind("health_listen", address).await?;
            process
                .helpers
                .spawn(health::serve(listener, process.health.clone()));
        }
        Ok(process)
    }

    /// Runs until the end is asked for and every part has ended.
    async fn run(mut self) -> anyhow::Result<Exit> {
        let mut panicked = false;
        while let Some(ended) = self.parts.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a part of the process ended by a panic");
                panicked = true;
                break;
            }
            if !self.shutdown.is_requested() {
                tracing::error!("a part of the process ended by itself");
                panicked = true;
                break;
            }
        }
        self.parts.shutdown().await;
        self.helpers.shutdown().await;
        self.store.close().await;
        // The supervisor starts a broken process anew.
        Ok(if panicked {
            Exit::Unavailable
        } else {
            Exit::Done
        })
    }

    fn serve_api(
        &mut self,
        settings: &Settings,
        listener: TcpListener,
    ) -> anyhow::Result<SocketAddr> {
        let config = ApiConfig {
            kinds: settings.kinds.clone(),
            header_timeout: settings.http.header_timeout,
            body_timeout: settings.http.body_timeout,
            request_budget: settings.http.request_budget,
            wait_max: settings.http.wait_max,
            shutdown_grace: settings.shutdown_grace,
        };
        let health = self.health.clone();
        let readiness = Arc::new(move || health.report());
        let api = Api::new(
            &self.store,
            open_blobs(settings)?,
            Arc::new(SystemIds),
            readiness,
            &config,
        )?;
        let address = listener.local_addr()?;
        let shutdown = self.shutdown.clone();
        self.parts.spawn(async move {
            fencepost_api::serve(listener, api, async move { shutdown.requested().await }).await;
        });
        Ok(address)
    }

    /// Reaper and retention: what someone has to do on each database.
    fn run_housekeeping(
        &mut self,
        settings: &Settings,
        counters: Arc<Counters>,
    ) -> anyhow::Result<()> {
        let relay = &settings.relay;
        let config = ReaperConfig::new(life("reaper")?, relay.reap_interval, relay.leader_lease);
        let reaper = Reaper::new(self.store.clone(), config, counters);
        let shutdown = self.shutdown.clone();
        self.parts
            .spawn(async move { reaper.run(async move { shutdown.requested().await }).await });
        let config = RetentionConfig {
            id: life("retention")?,
            interval: settings.retention.interval,
            leader_lease: relay.leader_lease,
            finished: settings.retention.finished,
            keys: settings.retention.keys,
            blobs: settings.retention.blobs,
        };
        let retention = Retention::new(self.store.clone(), open_blobs(settings)?, config);
        let shutdown = self.shutdown.clone();
        self.parts.spawn(async move {
            retention
                .run(async move { shutdown.requested().await })
                .await;
        });
        Ok(())
    }

    /// The probes that ask by themselves, where there are any.
    fn run_prober(&mut self, settings: &Settings) -> anyhow::Result<()> {
        let mut prober = Prober::new(self.store.clone(), life("prober")?);
        let mut asks = false;
        for kind in settings.kinds.iter() {
            let every = kind.probe.as_ref().and_then(|probe| probe.every);
            if let (Some(probe), Some(every)) = (handlers::probe(kind)?, every) {
                let whole = handlers::is_one_effect(kind);
                prober = prober.probe(kind.name.clone(), probe, every, whole);
                asks = true;
            }
        }
        if asks {
            let shutdown = self.shutdown.clone();
            self.parts
                .spawn(async move { prober.run(async move { shutdown.requested().await }).await });
        }
        Ok(())
    }

    fn run_worker(
        &mut self,
        settings: &Settings,
        broker: Option<ConnectionOptions>,
    ) -> anyhow::Result<()> {
        let ids: Arc<dyn IdSource> = Arc::new(SystemIds);
        let mut builder = Worker::builder(
            self.store.clone(),
            open_blobs(settings)?,
            settings.kinds.clone(),
            ids,
        )
        .name(format!("worker@{}", host()))
        .slots(settings.concurrency)
        .grace(settings.shutdown_grace)
        .heartbeat(settings.worker.heartbeat)
        .queues(settings.queues.clone());
        for kind in settings.kinds.iter() {
            builder = handlers::add(builder, kind)?;
        }
        let worker = builder.build()?;
        let queues = worker.queues().to_vec();
        let source: Box<dyn Source> = match broker {
            None => Box::new(Poll::limited(
                self.store.clone(),
                queues,
                &settings.kinds,
                worker.limits().clone(),
            )),
            Some(connection) => {
                let slots = settings.concurrency as usize;
                let all = prefetch(slots.saturating_mul(IN_HAND_PER_SLOT));
                let mut options = ConsumerOptions::new(connection, Topology::new(queues), all);
                let limits = worker.limits().iter();
                options.prefetch_of = limits
                    .map(|(queue, limit)| (queue.clone(), prefetch(*limit)))
                    .collect();
                let source = Amqp::start(options);
                self.helpers.spawn(follow(
                    source.state(),
                    self.health.clone(),
                    "broker",
                    broker_fault,
                ));
                Box::new(source)
            }
        };
        self.run_prober(settings)?;
        let shutdown = self.shutdown.clone();
        self.parts.spawn(async move {
            worker
                .run(source, async move { shutdown.requested().await })
                .await;
        });
        Ok(())
    }

    fn run_relay(
        &mut self,
        settings: &Settings,
        connection: ConnectionOptions,
    ) -> anyhow::Result<()> {
        let queues: Vec<QueueName> = settings.kinds.queues();
        let mut options = PublisherOptions::new(connection, Topology::new(queues.clone()));
        options.confirm_limit = settings.relay.confirm_timeout;
        let publisher = Publisher::start(options);
        self.helpers.spawn(follow(
            publisher.state(),
            self.health.clone(),
            "broker",
            broker_fault,
        ));
        let config = RelayConfig {
            id: life("relay")?,
            queues,
            poll: settings.relay.poll,
            confirm_timeout: settings.relay.confirm_timeout,
            leader_lease: settings.relay.leader_lease,
            worker_timeout: settings.worker.timeout,
            redispatch: Redispatch {
                initial: settings.relay.redispatch_initial,
                max: settings.relay.redispatch_max,
                when_empty: settings.relay.redispatch_when_empty,
            },
        };
        let relay = Relay::new(self.store.clone(), Arc::new(publisher), config);
        let fault = |state: &RelayState| match state {
            RelayState::Ready => None,
            RelayState::NotReady(why) => Some(why.clone()),
        };
        self.helpers
            .spawn(follow(relay.state(), self.health.clone(), "relay", fault));
        let counters = relay.counters();
        let shutdown = self.shutdown.clone();
        self.parts
            .spawn(async move { relay.run(async move { shutdown.requested().await }).await });
        self.run_housekeeping(settings, counters)
    }
}

async fn bind(key: &str, address: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        bad_setting(
            key,
            &format!("`{address}` ({error})"),
            "a free address such as 127.0.0.1:8080",
        )
    })
}

fn prefetch(deliveries: usize) -> NonZeroU16 {
    u16::try_from(deliveries)
        .ok()
        .and_then(NonZeroU16::new)
        .unwrap_or(NonZeroU16::MAX)
}

/// `fencepost up`: everything in one process, no broker.
pub(crate) async fn up(settings: &Settings) -> anyhow::Result<Exit> {
    if settings.amqp_url.is_some() {
        tracing::warn!(
            "`up` runs without a broker; amqp_url is ignored. For RabbitMQ run `api`, `relay` and `worker`"
        );
    }
    // First of all: an address that is taken is found before anything is made.
    let listener = bind("listen", &settings.listen).await?;
    let mut process = Process::start(settings).await?;
    bootstrap(settings, &process.store).await?;
    let key_file = first_key_file(settings);
    keys::first(&process.store, &SystemIds, &key_file).await?;
    process.run_worker(settings, None)?;
    process.run_housekeeping(settings, Arc::default())?;
    let address = process.serve_api(settings, listener)?;
    welcome(settings, address);
    process.run().await
}

fn welcome(settings: &Settings, address: SocketAddr) {
    let key = first_key_file(settings);
    output::line(format!("fencepost is listening on http://{address}"));
    output::line(format!(
        "its data is in {}; the first API key is in {}",
        settings.data_dir.display(),
        key.display()
    ));
    output::line("");
    output::line("submit a job from another terminal:");
    output::line("");
    output::line(format!("  curl -i http://{address}/jobs \\"));
    output::line(format!(
        "    -H \"Authorization: Bearer $(cat {})\" \\",
        key.display()
    ));
    output::line("    -H \"Idempotency-Key: hello-1\" -H \"Content-Type: application/json\" \\");
    output::line("    -d '{\"kind\":\"echo\",\"payload\":{\"hello\":\"world\"}}'");
}

/// `fencepost api`.
pub(crate) async fn api(settings: &Settings) -> anyhow::Result<Exit> {
    let listener = bind("listen", &settings.listen).await?;
    let mut process = Process::start(settings).await?;
    bootstrap(settings, &process.store).await?;
    let address = process.serve_api(settings, listener)?;
    output::line(format!("fencepost api is listening on http://{address}"));
    process.run().await
}

async fn bootstrap(settings: &Settings, store: &Store) -> anyhow::Result<()> {
    match &settings.bootstrap_key_file {
        Some(file) => keys::bootstrap(store, file).await,
        None => Ok(()),
    }
}

/// `fencepost relay`.
pub(crate) async fn relay(settings: &Settings) -> anyhow::Result<Exit> {
    let connection = connection(settings, "relay")?.ok_or_else(|| {
        bad_setting(
            "amqp_url",
            "nothing",
            "RabbitMQ's URL, such as amqp://user:password@host:5672/%2f",
        )
    })?;
    let mut process = Process::start(settings).await?;
    process.run_relay(settings, connection)?;
    output::line("fencepost relay is running");
    process.run().await
}

/// `fencepost worker`.
pub(crate) async fn worker(settings: &Settings) -> anyhow::Result<Exit> {
    let connection = connection(settings, "worker")?;
    let mut process = Process::start(settings).await?;
    if connection.is_none() {
        // Without a broker there is no relay, and someone has to take lost jobs back.
        process.run_housekeeping(settings, Arc::default())?;
    }
    process.run_worker(settings, connection)?;
    output::line("fencepost worker is running");
    process.run().await
}
