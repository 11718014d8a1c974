//! A worker of one's own: one kind, one handler, jobs straight from the database.
//!
//! `invoice-worker DATABASE RECEIVER-URL [RENDER-MS]`. `crash-around-an-effect.sh`
//! runs it beside `fencepost up`; `docs/guides/handlers.md` explains it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::kind::{Kind, Kinds, Runner};
use fencepost_service::shutdown::Shutdown;
use fencepost_service::system::{SystemClock, SystemIds};
use fencepost_store::blobs::Blobs;
use fencepost_store::{OpenOptions, Store};
use fencepost_worker::source::Poll;
use fencepost_worker::{
    CallError, Context, EffectCall, Handler, HandlerError, HandlerResult, Outcome, Worker,
};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Invoice {
    number: String,
    amount: String,
}

#[derive(Debug)]
struct SendInvoice {
    http: reqwest::Client,
    receiver: String,
    /// Stands for work that takes its time.
    render_takes: Duration,
}

#[async_trait]
impl Handler for SendInvoice {
    async fn run(&self, context: &Context) -> HandlerResult {
        let invoice: Invoice = context.payload_as()?;

        // Safe to repeat: its outcome is saved, a later attempt gets the saved one.
        let text: String = context
            .step("render", || async { self.render(&invoice).await })
            .await?;

        // Changes the outside world: marked on disk before it goes out, never repeated blindly.
        let receipt: String = context
            .effect("send", |call| async { self.send(text, call).await })
            .await?;

        Ok(Outcome::completed(&receipt)?)
    }
}

impl SendInvoice {
    async fn render(&self, invoice: &Invoice) -> Result<String, HandlerError> {
        tokio::time::sleep(self.render_takes).await;
        if invoice.number.is_empty() {
            return Err("an invoice needs a number".into());
        }
        Ok(format!("Invoice {}: {}", invoice.number, invoice.amount))
    }

    async fn send(&self, text: String, call: EffectCall) -> Result<String, CallError> {
        let request = self
            .http
            .post(&self.receiver)
            .header("Idempotency-Key", call.key)
            .header("Fencepost-Job-Id", call.job.to_string())
            .header("Fencepost-Epoch", call.epoch.to_string())
            .body(text);
        let answer = request.send().await.map_err(|error| {
            if error.is_connect() {
                // Nothing was sent: proof that nothing was done.
                CallError::Declined("no connection to the receiver".to_owned())
            } else {
                CallError::Unknown("the receiver did not answer".to_owned())
            }
        })?;
        match answer.status().as_u16() {
            200..=299 => answer
                .text()
                .await
                .map_err(|_| CallError::Unknown("the answer broke off".to_owned())),
            status @ 400..=499 => Err(CallError::Declined(format!("answered {status}"))),
            status => Err(CallError::Unknown(format!("answered {status}"))),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), HandlerError> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: invoice-worker DATABASE RECEIVER-URL [RENDER-MS]";
    let path = PathBuf::from(arguments.next().ok_or(usage)?);
    let handler = SendInvoice {
        http: reqwest::Client::builder()
            .timeout(Duration::from_secs(30))
            .build()?,
        receiver: arguments.next().ok_or(usage)?,
        render_takes: Duration::from_millis(arguments.next().map_or(Ok(0), |ms| ms.parse())?),
    };
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
    let mut kind = Kind::new(
        "invoice.send".parse()?,
        "billing".parse()?,
        Runner::Registered,
    );
    kind.lease = Duration::from_secs(2);
    let blobs = Blobs::local(&directory.join("blobs"))?;
    let worker = Worker::builder(
        store.clone(),
        blobs,
        Kinds::new([kind]),
        Arc::new(SystemIds),
    )
    .name("invoice-worker")
    .handler("invoice.send".parse()?, handler)
    .build()?;
    let source = Box::new(Poll::new(store.clone(), worker.queues().to_vec()));
    worker
        .run(source, async move { shutdown.requested().await })
        .await;
    store.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use fencepost_worker::testing::{EventType, State, Trial};
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn handler(receiver: String, render_takes: Duration) -> SendInvoice {
        SendInvoice {
            http: reqwest::Client::new(),
            receiver,
            render_takes,
        }
    }

    #[tokio::test]
    async fn an_invoice_is_sent_once_although_the_worker_crashes_before_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let mut trial = Trial::new(handler(url, Duration::from_millis(200)))
            .await
            .unwrap();
        let invoice = json!({"number": "7", "amount": "1.00 EUR"});
        let job = trial.submit(&invoice).await.unwrap();
        trial.has(job, EventType::Claimed).await.unwrap();
        trial.crash().await;
        let answer = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).await.unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nreceived")
                .await
                .unwrap();
            String::from_utf8_lossy(request.get(..read).unwrap()).to_lowercase()
        };
        let (done, request) = tokio::join!(trial.rest(job), answer);
        let done = done.unwrap();
        assert_eq!((done.state, done.attempts), (State::Completed, 2));
        assert_eq!(done.result.as_deref(), Some("\"received\""));
        assert!(request.contains(&format!("idempotency-key: {job}/send")));
        assert!(request.contains("fencepost-epoch: 2"));
    }

    #[tokio::test]
    async fn a_crash_while_the_receiver_is_asked_leaves_the_job_unknown() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let mut trial = Trial::new(handler(url, Duration::ZERO)).await.unwrap();
        let invoice = json!({"number": "7", "amount": "1.00 EUR"});
        let job = trial.submit(&invoice).await.unwrap();
        // Nobody answers.
        let asked = listener.accept().await.unwrap();
        trial.crash().await;
        let left = trial.rest(job).await.unwrap();
        assert_eq!(left.state, State::Unknown);
        drop(asked);
    }

    #[tokio::test]
    async fn an_invoice_without_a_number_fails() {
        let unused = handler("http://127.0.0.1:1/".to_owned(), Duration::ZERO);
        let mut trial = Trial::new(unused).await.unwrap();
        let invoice = json!({"number": "", "amount": "1.00 EUR"});
        let job = trial.run(&invoice).await.unwrap();
        assert_eq!((job.state, job.attempts), (State::Dead, 3));
    }
}
