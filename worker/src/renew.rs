//! Leases are kept alive from a thread of their own.
//!
//! Owns when a lease is renewed (a third of it has gone by) and when a run is
//! stopped: at the earlier of lease end and deadline, by a monotonic clock
//! started before the claim or renewal was sent. A handler that blocks every
//! thread of its runtime cannot keep a renewal from being sent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencepost_core::lease::Fenced;
use fencepost_store::{Claim, Renew, Renewed, Store, StoreError};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Renewals in a lease's time.
const RENEWALS_PER_LEASE: u32 = 3;

/// After a renewal that got no answer, the next is tried this much of the lease later.
const RETRIES_PER_LEASE: u32 = 10;

/// What a run is told about its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Go on.
    Go,
    /// Someone asked for cancellation: the handler should end by itself.
    CancelAsked,
    /// The lease or the deadline ended: the handler is stopped.
    Expired,
    /// The store refused a renewal: the handler is stopped.
    Lost(Fenced),
    /// The worker ends: the handler is stopped and the claim given back.
    Ending,
}

impl Signal {
    pub(crate) fn stops(self) -> bool {
        matches!(self, Self::Expired | Self::Lost(_) | Self::Ending)
    }
}

/// A run's side of its lease. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    signal: watch::Receiver<Signal>,
    ends_at: watch::Receiver<Instant>,
}

impl Lease {
    /// When the run is stopped, unless the lease is renewed.
    pub(crate) fn ends_at(&self) -> Instant {
        *self.ends_at.borrow()
    }

    /// Resolves when [`Lease::ends_at`] has changed since it was last asked by this clone.
    pub(crate) async fn moved(&mut self) {
        if self.ends_at.changed().await.is_err() {
            // The run is over: nothing moves any more.
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when the handler should end.
    pub(crate) async fn told(&self) {
        // A dropped sender means that the run is over.
        drop(
            self.signal
                .clone()
                .wait_for(|signal| *signal != Signal::Go)
                .await,
        );
    }

    /// Whether the run was told that the worker ends.
    pub(crate) fn is_ending(&self) -> bool {
        *self.signal.borrow() == Signal::Ending
    }

    /// Resolves when the handler must end, with why.
    pub(crate) async fn stopped(&self) -> Signal {
        let mut signal = self.signal.clone();
        let told = signal.wait_for(|signal| signal.stops()).await;
        told.map_or(Signal::Expired, |signal| *signal)
    }
}

#[derive(Debug)]
struct Held {
    lease: Duration,
    deadline: Instant,
    lease_end: Instant,
    renew_at: Instant,
    renewing: bool,
    signal: watch::Sender<Signal>,
    ends_at: watch::Sender<Instant>,
}

impl Held {
    fn end(&self) -> Instant {
        self.lease_end.min(self.deadline)
    }
}

#[derive(Debug)]
struct Shared {
    held: Mutex<HashMap<Claim, Held>>,
    changed: Notify,
    store: Store,
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, HashMap<Claim, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The renewal thread's handle. The thread ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Renewals {
    shared: Arc<Shared>,
    _alive: watch::Sender<()>,
}

/// Keeps a claim renewed until dropped.
#[derive(Debug)]
pub(crate) struct Kept {
    claim: Claim,
    shared: Arc<Shared>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.shared.held().remove(&self.claim);
    }
}

impl Renewals {
    pub(crate) fn start(store: Store) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            held: Mutex::default(),
            changed: Notify::new(),
            store,
        });
        let (alive, ended) = watch::channel(());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let work = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("fencepost-renew".to_owned())
            .spawn(move || runtime.block_on(run(&work, ended)))?;
        Ok(Self {
            shared,
            _alive: alive,
        })
    }

    /// Keeps a claim that was asked for at `sent`.
    pub(crate) fn keep(
        &self,
        claim: Claim,
        sent: Instant,
        lease: Duration,
        deadline_in: Duration,
    ) -> (Kept, Lease) {
        let lease_end = sent + lease;
        let deadline = sent + deadline_in;
        let (signal, told) = watch::channel(Signal::Go);
        let (ends_at, end) = watch::channel(lease_end.min(deadline));
        let renew_at = sent + lease / RENEWALS_PER_LEASE;
        let held = Held {
            lease,
            deadline,
            lease_end,
            renew_at,
            renewing: false,
            signal,
            ends_at,
        };
        self.shared.held().insert(claim, held);
        self.shared.changed.notify_one();
        let kept = Kept {
            claim,
            shared: Arc::clone(&self.shared),
        };
        (
            kept,
            Lease {
                signal: told,
                ends_at: end,
            },
        )
    }

    /// Tells every run that the worker ends.
    pub(crate) fn end_all(&self) {
        for held in self.shared.held().values() {
            tell(held, Signal::Ending);
        }
    }
}

/// The first signal that stops a run stands.
fn tell(held: &Held, signal: Signal) {
    held.signal.send_if_modified(|told| {
        let changes = !told.stops() && *told != signal;
        if changes {
            *told = signal;
        }
        changes
    });
}

type Answer = (Claim, Instant, Result<Renewed, StoreError>);

async fn run(shared: &Shared, mut ended: watch::Receiver<()>) {
    let mut renewing: JoinSet<Answer> = JoinSet::new();
    loop {
        let next = look(shared, &mut renewing);
        tokio::select! {
            _ = ended.changed() => return,
            () = shared.changed.notified() => {}
            Some(answer) = renewing.join_next() => {
                if let Ok(answer) = answer {
                    take(shared, answer);
                }
            }
            () = sleep_until(next) => {}
        }
    }
}

async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Stops what has ended, sends what is due, and says when to look again.
fn look(shared: &Shared, renewing: &mut JoinSet<Answer>) -> Option<Instant> {
    let now = Instant::now();
    let mut next: Option<Instant> = None;
    let mut earlier =
        |instant: Instant| next = Some(next.map_or(instant, |next| next.min(instant)));
    for (claim, held) in shared.held().iter_mut() {
        if held.signal.borrow().stops() {
            continue;
        }
        if held.end() <= now {
            tell(held, Signal::Expired);
            continue;
        }
        earlier(held.end());
        if held.renewing {
            continue;
        }
        if held.renew_at > now {
            earlier(held.renew_at);
            continue;
        }
        held.renewing = true;
        let request = Renew {
            claim: *claim,
            lease: held.lease,
        };
        // An answer after the end is worth nothing.
        let store = shared.store.with_budget(held.end() - now);
        renewing.spawn(async move { (request.claim, now, store.renew(request).await) });
    }
    next
}

fn take(shared: &Shared, (claim, sent, answer): Answer) {
    let mut all = shared.held();
    // The run may be over by now.
    let Some(held) = all.get_mut(&claim) else {
        return;
    };
    held.renewing = false;
    match answer {
        Ok(Renewed::Live {
            lease_for,
            deadline_in,
            cancel_requested,
        }) => {
            held.lease_end = sent + lease_for;
            held.deadline = sent + deadline_in;
            held.renew_at = sent + held.lease / RENEWALS_PER_LEASE;
            held.ends_at.send_replace(held.end());
            if cancel_requested {
                tell(held, Signal::CancelAsked);
            }
        }
        Ok(Renewed::Fenced(fenced)) => tell(held, Signal::Lost(fenced)),
        Err(error) => {
            tracing::debug!(job = %claim.job(), %error, "a renewal got no answer; trying again");
            held.renew_at = Instant::now() + held.lease / RETRIES_PER_LEASE;
        }
    }
}
