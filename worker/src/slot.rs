//! One job, from its claim to what is done with its dispatch.
//!
//! Owns the order: claim, run, report, and only then an answer by which the
//! dispatch is settled. A database that does not answer is asked again; nothing
//! is given up and no attempt is spent meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fencepost_broker::reconnect::Backoff;
use fencepost_core::dispatch::JobRef;
use fencepost_core::id::{KindName, WorkerId};
use fencepost_core::lifecycle::State;
use fencepost_store::blobs::Blobs;
use fencepost_store::{
    ClaimJob, ClaimOutcome, ClaimedJob, Complete, ErrorClass, Fail, PutBack, PutBackOutcome,
    Release, Report, Snooze, Store, StoreError,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::ack::{Said, Settlement, settle};
use crate::context::Context;
use crate::handler::{Handler, HandlerResult, Outcome, failure};
use crate::renew::{Lease, Renewals, Signal};

/// The first pause before an unanswered database is asked again.
const AGAIN_INITIAL: Duration = Duration::from_millis(100);

/// The longest pause.
const AGAIN_MAX: Duration = Duration::from_secs(2);

/// How long a slot rests after an error that asking again does not cure: its
/// job is due all the while, and may be the next to come.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// How long a handler may take to end by itself when the worker ends, and then
/// to reach its next await, before the claim is given back without it.
const ABORT_LIMIT: Duration = Duration::from_secs(1);

/// What every slot works with.
#[derive(Debug)]
pub(crate) struct Workshop {
    pub(crate) store: Store,
    pub(crate) blobs: Blobs,
    pub(crate) worker: WorkerId,
    pub(crate) handlers: BTreeMap<KindName, Bench>,
    pub(crate) renewals: Renewals,
    pub(crate) runtime: Handle,
    /// How many slots wait for a database that does not answer.
    pub(crate) waiting: watch::Sender<usize>,
}

/// What a kind is run with.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) lease: Duration,
    /// Whether its epoch leaves the process outside an effect.
    pub(crate) epoch_leaves: bool,
    /// Jobs of it that run here at once.
    pub(crate) cap: Option<usize>,
}

/// Runs a job and answers what is done with its dispatch.
pub(crate) async fn run(shop: &Workshop, job: &JobRef) -> Settlement {
    let said = match shop.handlers.get(&job.kind) {
        Some(bench) => claim_and_run(shop, job, bench).await,
        None => Said::KindNotHere,
    };
    settled(shop, job, said).await
}

/// What is done with the dispatch of a job, after the entry was put back if that is to be.
pub(crate) async fn settled(shop: &Workshop, job: &JobRef, said: Said) -> Settlement {
    let settlement = settle(said);
    if let Settlement::PutBack(reason) = settlement {
        let put_back = PutBack {
            job: job.id,
            reason,
            actor: shop.worker.to_string(),
        };
        match insist(shop, || shop.store.put_back(put_back.clone())).await {
            Ok(PutBackOutcome::Until(until)) => {
                tracing::info!(job = %job.id, kind = %job.kind, reason, %until, "put a job back");
            }
            Ok(PutBackOutcome::NotQueued) => {}
            Err(error) => tracing::warn!(job = %job.id, %error, "a job could not be put back"),
        }
    }
    settlement
}

async fn claim_and_run(shop: &Workshop, job: &JobRef, bench: &Bench) -> Said {
    let request = ClaimJob {
        job: job.id,
        worker: shop.worker.clone(),
        lease: bench.lease,
        epoch_leaves: bench.epoch_leaves,
    };
    let mut sent = Instant::now();
    let claimed = insist(shop, || {
        sent = Instant::now();
        shop.store.claim(request.clone())
    })
    .await;
    match claimed {
        Ok(ClaimOutcome::Claimed(claimed)) => {
            work(shop, *claimed, sent, Arc::clone(&bench.handler)).await
        }
        Ok(ClaimOutcome::Refused(refusal)) => Said::Refused(refusal),
        Err(StoreError::Closed) => Said::Ending,
        Err(error) => {
            tracing::error!(job = %job.id, %error, "a job could not be claimed");
            tokio::time::sleep(REFUSED_PAUSE).await;
            // Its entry stands: it is dispatched again.
            Said::Ending
        }
    }
}

async fn work(
    shop: &Workshop,
    claimed: ClaimedJob,
    sent: Instant,
    handler: Arc<dyn Handler>,
) -> Said {
    let claim = claimed.claim;
    let span = tracing::info_span!("run", job = %claim.job(), epoch = %claim.epoch(), kind = %claimed.kind);
    let (kept, lease) = shop
        .renewals
        .keep(claim, sent, claimed.lease_for, claimed.deadline_in);
    let context = Context {
        job: Arc::new(claimed),
        lease: lease.clone(),
        store: shop.store.clone(),
        blobs: shop.blobs.clone(),
    };
    let running = context.clone();
    let task = shop
        .runtime
        .spawn(async move { handler.run(&running).await }.instrument(span.clone()));
    let said = finish(shop, &context, &lease, task).instrument(span).await;
    drop(kept);
    said
}

async fn finish(
    shop: &Workshop,
    context: &Context,
    lease: &Lease,
    mut task: JoinHandle<HandlerResult>,
) -> Said {
    let stopped = tokio::select! {
        // What ended first counts first: a result that is there is reported.
        biased;
        ended = &mut task => return conclude(shop, context, lease, ended).await,
        signal = lease.stopped() => signal,
    };
    match stopped {
        Signal::Ending => {
            // One that listens ends by itself; a result that is there is reported.
            // The lease is no longer renewed, and giving back takes some of it.
            let limit = || ABORT_LIMIT.min(context.time_left() / 3);
            if let Ok(ended) = tokio::time::timeout(limit(), &mut task).await {
                return conclude(shop, context, lease, ended).await;
            }
            // Whether it ends now or not, the claim is given back: late marks and
            // reports of a handler that blocks are fenced.
            task.abort();
            drop(tokio::time::timeout(limit(), task).await);
            give_back(shop, context).await
        }
        Signal::Lost(fenced) => {
            task.abort();
            lost(context, fenced.as_str());
            // The slot stays taken until the handler has really ended.
            drop(task.await);
            Said::Fenced
        }
        Signal::Expired | Signal::Go | Signal::CancelAsked => {
            task.abort();
            lost(context, "lease_or_deadline_ended");
            drop(task.await);
            Said::Expired
        }
    }
}

/// Reports how a handler ended. One that broke off because the worker ends, as it
/// should, has not failed: its job is given back and no attempt is spent.
async fn conclude(
    shop: &Workshop,
    context: &Context,
    lease: &Lease,
    ended: Result<HandlerResult, tokio::task::JoinError>,
) -> Said {
    let outcome = match ended {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => Outcome::of_error(&error),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => Outcome::of_panic(&*panic),
            Err(_) => Outcome::retry("handler_aborted", "the handler's runtime ended"),
        },
    };
    if lease.is_ending() && matches!(outcome, Outcome::Retry { .. }) {
        return give_back(shop, context).await;
    }
    report(shop, context, outcome.checked()).await
}

/// Gives a job back that the worker will not finish.
async fn give_back(shop: &Workshop, context: &Context) -> Said {
    let claim = context.job.claim;
    let release = || {
        shop.store.release(Release {
            claim,
            reason: "shutdown",
        })
    };
    said(context, insist(shop, release).await)
}

/// The one line about a claim that was lost.
fn lost(context: &Context, reason: &str) {
    tracing::warn!(
        job = %context.job(),
        epoch = %context.epoch(),
        reason,
        "lost lease: whatever this run still does is fenced"
    );
}

async fn report(shop: &Workshop, context: &Context, outcome: Outcome) -> Said {
    let claim = context.job.claim;
    let reported = if let Some((kind, code, message, after)) = failure(&outcome) {
        tracing::info!(code = %code, "the handler failed");
        let fail = Fail {
            claim,
            failure: kind,
            code: code.clone(),
            message: message.clone(),
            retry_after: after,
        };
        insist(shop, || shop.store.fail(fail.clone())).await
    } else {
        match outcome {
            Outcome::Completed(result) => {
                let complete = Complete { claim, result };
                insist(shop, || shop.store.complete(complete.clone())).await
            }
            Outcome::Snooze(delay) => {
                insist(shop, || shop.store.snooze(Snooze { claim, delay })).await
            }
            Outcome::Retry { .. } | Outcome::Dead { .. } => return Said::Fenced,
        }
    };
    said(context, reported)
}

fn said(context: &Context, reported: Result<Report, StoreError>) -> Said {
    match reported {
        Ok(Report::Recorded { state }) => {
            if state == State::Unknown {
                tracing::warn!(job = %context.job(), "the job has an effect without a known outcome; a verdict is needed");
            }
            Said::Recorded(state)
        }
        Ok(Report::Fenced(fenced)) => {
            lost(context, fenced.as_str());
            Said::Fenced
        }
        Err(error) => {
            tracing::error!(job = %context.job(), %error, "a report was refused by the database");
            // Its lease ends, and the reaper takes it back.
            Said::Expired
        }
    }
}

/// Asks until the database answers. Meanwhile the worker stops consuming.
///
/// A report that was recorded although its answer was lost is fenced when it is
/// repeated: the job is then in the state that was asked for.
async fn insist<T, A>(shop: &Workshop, mut ask: impl FnMut() -> A) -> Result<T, StoreError>
where
    A: Future<Output = Result<T, StoreError>>,
{
    let mut backoff = Backoff::new(AGAIN_INITIAL, AGAIN_MAX);
    let mut waiting = None;
    loop {
        match ask().await {
            Err(StoreError::Closed) => return Err(StoreError::Closed),
            Err(error) if error.class() == ErrorClass::Transient => {
                if waiting.is_none() {
                    tracing::warn!(%error, "the database does not answer; holding");
                    waiting = Some(Waiting::start(shop));
                }
                tokio::time::sleep(backoff.next_delay()).await;
            }
            answer => return answer,
        }
    }
}

/// Counts a slot as waiting while it lives.
struct Waiting<'a>(&'a Workshop);

impl<'a> Waiting<'a> {
    fn start(shop: &'a Workshop) -> Self {
        shop.waiting.send_modify(|count| *count += 1);
        Self(shop)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|count| *count -= 1);
    }
}
