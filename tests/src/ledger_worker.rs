//! A worker with one handler, whose calls to the outside world are lines in a file.
//!
//! The payload says what it does, in this order: `before_ms` a pause, which a
//! cancellation ends as it does `after_ms`; `abort`
//! ends the process; `block_ms` blocks its thread and `post` calls a receiver
//! from it, as no careful handler would; `call` makes the call as an effect; `inside_ms` a pause
//! between the call and its settlement; `after_ms` a pause; then its result,
//! the name of the worker. With `steps` it makes an effect of each of those
//! names instead; under its first epoch it waits for ever where `stop_at` says
//! (`NAME before`, `NAME called`, `NAME stored`), and the outcome of `unclear`
//! is not known.

#![expect(clippy::print_stdout, reason = "a program for tests alone")]

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use fencepost_broker::{ConnectionOptions, ConsumerOptions, Topology};
use fencepost_service::settings::{Settings, Sources, process_environment};
use fencepost_service::shutdown::Shutdown;
use fencepost_service::system::{SystemClock, SystemIds};
use fencepost_service::telemetry;
use fencepost_store::blobs::Blobs;
use fencepost_store::{OpenOptions, Store};
use fencepost_worker::source::{Amqp, Poll, Source};
use fencepost_worker::{CallError, Context, Handler, HandlerResult, Outcome, Worker};
use serde::Deserialize;

#[derive(Debug)]
struct Ledger {
    file: PathBuf,
    name: String,
}

#[derive(Deserialize)]
#[serde(default)]
struct Plan {
    before_ms: u64,
    abort: bool,
    block_ms: u64,
    post: Option<String>,
    call: bool,
    inside_ms: u64,
    after_ms: u64,
    steps: Vec<String>,
    stop_at: Option<String>,
    unclear: Option<String>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            before_ms: 0,
            abort: false,
            block_ms: 0,
            post: None,
            call: true,
            inside_ms: 0,
            after_ms: 0,
            steps: Vec::new(),
            stop_at: None,
            unclear: None,
        }
    }
}

impl Ledger {
    fn note(&self, context: &Context, what: &str) -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.file)?;
        // One write, so that lines of several processes do not mix.
        file.write_all(format!("{} {} {what}\n", context.job(), context.epoch()).as_bytes())
    }
}

impl Ledger {
    /// Notes that a point was reached, and stays there if it is the one.
    async fn point(&self, context: &Context, plan: &Plan, point: &str) -> std::io::Result<()> {
        self.note(context, point)?;
        if plan.stop_at.as_deref() == Some(point) && context.epoch().0 == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn run_steps(&self, context: &Context, plan: &Plan) -> HandlerResult {
        for step in &plan.steps {
            self.point(context, plan, &format!("{step} before")).await?;
            context
                .effect(step, |call| async move {
                    self.point(context, plan, &format!("{step} called"))
                        .await
                        .map_err(|error| CallError::Declined(error.to_string()))?;
                    if plan.unclear.as_ref() == Some(step) {
                        return Err(CallError::Unknown("answered 500".to_owned()));
                    }
                    Ok(call.key)
                })
                .await?;
            self.point(context, plan, &format!("{step} stored")).await?;
        }
        Ok(Outcome::completed(&self.name)?)
    }
}

/// Calls the receiver without a mark, and without an await at which it could be
/// stopped; answers the status.
fn post(address: &str, context: &Context) -> std::io::Result<String> {
    let mut stream = std::net::TcpStream::connect(address)?;
    let (job, epoch) = (context.job(), context.epoch());
    write!(
        stream,
        "POST / HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\n\
         idempotency-key: {job}/call\r\nfencepost-job-id: {job}\r\nfencepost-epoch: {epoch}\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1);
    Ok(status.unwrap_or("nothing").to_owned())
}

/// A pause that ends when the run should.
async fn patiently(context: &Context, millis: u64) -> Result<(), &'static str> {
    tokio::select! {
        () = pause(millis) => Ok(()),
        () = context.cancelled() => Err("told to stop"),
    }
}

async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await; // deliberate: the payload asks for it
}

#[async_trait]
impl Handler for Ledger {
    async fn run(&self, context: &Context) -> HandlerResult {
        let plan: Plan = context.payload_as()?;
        self.note(context, "start")?;
        if !plan.steps.is_empty() {
            return self.run_steps(context, &plan).await;
        }
        patiently(context, plan.before_ms).await?;
        if plan.abort {
            std::process::abort();
        }
        std::thread::sleep(Duration::from_millis(plan.block_ms)); // deliberate: the payload asks for it
        if let Some(address) = &plan.post {
            let answer = post(address, context)?;
            self.note(context, &answer)?;
        }
        if plan.call {
            context
                .effect("call", |call| async move {
                    self.note(context, "call")
                        .map_err(|error| CallError::Declined(error.to_string()))?;
                    pause(plan.inside_ms).await;
                    Ok(call.key)
                })
                .await?;
        }
        patiently(context, plan.after_ms).await?;
        Ok(Outcome::completed(&self.name)?)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let environment: &dyn Fn(&str) -> Option<String> = &process_environment;
    let settings = Settings::load(Sources {
        environment: Some(environment),
        ..Sources::default()
    })?;
    telemetry::start(&settings.log, settings.log_format).map_err(anyhow::Error::msg)?;
    let shutdown = Shutdown::install()?;
    let store = Store::open(OpenOptions {
        path: settings.data_dir.join("fencepost.db"),
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        allow_network_filesystem: true,
        wake_poll: settings.wake_poll,
    })
    .await?;
    let blobs = Blobs::local(&settings.data_dir.join("blobs"))?;
    let name = process_environment("FENCEPOST_TEST_NAME").unwrap_or_else(|| "ledger".to_owned());
    let file = process_environment("FENCEPOST_TEST_LEDGER").context("no ledger")?;
    let handler = Ledger {
        file: file.into(),
        name: name.clone(),
    };
    let worker = Worker::builder(
        store.clone(),
        blobs,
        settings.kinds.clone(),
        Arc::new(SystemIds),
    )
    .name(name)
    .slots(settings.concurrency)
    .grace(settings.shutdown_grace)
    .heartbeat(settings.worker.heartbeat)
    .handler("ledger".parse()?, handler)
    .build()?;
    let queues = worker.queues().to_vec();
    let source: Box<dyn Source> = match &settings.amqp_url {
        None => Box::new(Poll::new(store.clone(), queues)),
        Some(url) => {
            let mut connection = ConnectionOptions::new(url.expose().parse()?, "ledger-worker");
            connection.heartbeat = settings.amqp.heartbeat;
            connection.reconnect_max = settings.amqp.reconnect_max;
            let prefetch = u16::try_from(settings.concurrency * 2)?.try_into()?;
            Box::new(Amqp::start(ConsumerOptions::new(
                connection,
                Topology::new(queues),
                prefetch,
            )))
        }
    };
    println!("ledger worker is running");
    worker
        .run(source, async move { shutdown.requested().await })
        .await;
    store.close().await;
    Ok(())
}
