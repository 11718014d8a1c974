//! A worker of one's own: one kind, one handler, jobs straight from the database.
//!
//! Start `fencepost up` with the kind of `docs/guides/handlers.md` in its
//! settings, then this, with the path of the database file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::id::Epoch;
use fencepost_core::kind::{Kind, Kinds, Runner};
use fencepost_service::shutdown::Shutdown;
use fencepost_service::system::{SystemClock, SystemIds};
use fencepost_store::blobs::Blobs;
use fencepost_store::{OpenOptions, Store};
use fencepost_worker::source::Poll;
use fencepost_worker::{CallError, Context, Handler, HandlerError, HandlerResult, Outcome, Worker};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Invoice {
    number: String,
    amount: String,
}

#[derive(Debug)]
struct SendInvoice;

#[async_trait]
impl Handler for SendInvoice {
    async fn run(&self, context: &Context) -> HandlerResult {
        let invoice: Invoice = context.payload_as()?;

        // Safe to repeat: its outcome is saved, a later attempt gets the saved one.
        let text: String = context
            .step("render", || async { render(&invoice) })
            .await?;

        // Changes the outside world: marked on disk before it goes out, never repeated blindly.
        let receipt: String = context
            .effect("send", |call| async move {
                send(&text, &call.key, call.epoch).await
            })
            .await?;

        Ok(Outcome::completed(&receipt)?)
    }
}

fn render(invoice: &Invoice) -> Result<String, HandlerError> {
    if invoice.number.is_empty() {
        return Err("an invoice needs a number".into());
    }
    Ok(format!("Invoice {}: {}", invoice.number, invoice.amount))
}

/// Stands for a call to another system, which is given the key and the epoch.
#[expect(clippy::unused_async, reason = "a real call would wait")]
async fn send(text: &str, key: &str, epoch: Epoch) -> Result<String, CallError> {
    if text.len() > 10_000 {
        return Err(CallError::Declined(
            "the receiver takes short texts only".to_owned(),
        ));
    }
    Ok(format!("{key} accepted under epoch {epoch}"))
}

#[tokio::main]
async fn main() -> Result<(), HandlerError> {
    let path: PathBuf = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "fencepost-data/fencepost.db".to_owned())
        .into();
    let directory = path.parent().map(PathBuf::from).unwrap_or_default();
    let shutdown = Shutdown::install()?;
    let store = Store::open(OpenOptions {
        path,
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        allow_network_filesystem: false,
        wake_poll: Duration::from_secs(1),
    })
    .await?;
    let kind = Kind::new(
        "invoice.send".parse()?,
        "billing".parse()?,
        Runner::Registered,
    );
    let blobs = Blobs::local(&directory.join("blobs"))?;
    let worker = Worker::builder(
        store.clone(),
        blobs,
        Kinds::new([kind]),
        Arc::new(SystemIds),
    )
    .name("invoice-worker")
    .handler("invoice.send".parse()?, SendInvoice)
    .build()?;
    let source = Box::new(Poll::new(store.clone(), worker.queues().to_vec()));
    worker
        .run(source, async move { shutdown.requested().await })
        .await;
    store.close().await;
    Ok(())
}
