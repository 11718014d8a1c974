//! Kinds that run a few at a time: nobody waits behind them who need not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fencepost_core::fingerprint::{Fingerprint, Options};
use fencepost_core::id::{JobId, QueueName};
use fencepost_core::kind::{Kind, Kinds, Runner};
use fencepost_core::lifecycle::State;
use fencepost_service::system::SystemIds;
use fencepost_store::Submit;
use fencepost_testkit::wait::{eventually, require};
use fencepost_worker::source::Poll;
use fencepost_worker::{Context, Outcome, Worker};
use tokio::sync::Semaphore;

use crate::setup::{Does, KIND, PATIENCE, Running, World, kind, queue, submission};

const CAP: u32 = 2;

/// A worker on a kind with a cap whose jobs wait at a gate, and on one without.
struct Capped {
    world: World,
    worker: Running,
    gate: Arc<Semaphore>,
    most: Arc<AtomicU32>,
}

impl Capped {
    /// Both kinds in one queue, or each in its own.
    async fn new(lane: &QueueName) -> Self {
        let world = World::new().await;
        let gate = Arc::new(Semaphore::new(0));
        let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let slow = Kind {
            concurrency: Some(CAP),
            ..Kind::new(kind(KIND), lane.clone(), Runner::Registered)
        };
        let quick = Kind::new(kind("quick"), queue(), Runner::Registered);
        let kinds = Kinds::new([slow, quick]);
        let (at, peak) = (Arc::clone(&gate), Arc::clone(&most));
        let slow = move |_: Context| {
            let (at, now, peak) = (Arc::clone(&at), Arc::clone(&now), Arc::clone(&peak));
            async move {
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                at.acquire().await?.forget();
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(Outcome::completed(&())?)
            }
        };
        let quick = |_: Context| async { Ok(Outcome::completed(&())?) };
        let (store, blobs) = (world.store.clone(), world.blobs.clone());
        let builder = Worker::builder(store.clone(), blobs, kinds.clone(), Arc::new(SystemIds))
            .slots(8)
            .handler(kind(KIND), Does(slow))
            .handler(kind("quick"), Does(quick));
        let planned = builder.build().unwrap();
        let source = Poll::limited(
            store,
            planned.queues().to_vec(),
            &kinds,
            planned.limits().clone(),
        );
        let worker = Running::on(planned, Box::new(source));
        Self {
            world,
            worker,
            gate,
            most,
        }
    }

    async fn slow(&self, lane: &QueueName, count: usize) -> Vec<JobId> {
        let mut jobs = Vec::new();
        for n in 0..count {
            let request = Submit {
                queue: lane.clone(),
                ..submission(&format!("slow-{n}"), "{}")
            };
            jobs.push(self.world.submit(request).await);
        }
        jobs
    }

    async fn quick(&self) -> JobId {
        let quick = kind("quick");
        let request = Submit {
            fingerprint: Fingerprint::of(&quick, "{}", &Options::default()),
            kind: quick,
            ..submission("quick", "{}")
        };
        self.world.submit(request).await
    }

    /// Opens the gate; every job completes, at its first attempt, a few at a time.
    async fn finish(self, jobs: &[JobId]) {
        self.gate.add_permits(jobs.len());
        for job in jobs {
            let done = self.world.reaches(*job, State::Completed).await;
            assert_eq!(done.attempts, 1);
        }
        assert_eq!(self.most.load(Ordering::SeqCst), CAP);
        self.worker.stop().await;
        self.world.verify().await;
    }

    async fn runs_at_its_cap(&self) {
        eventually(PATIENCE, "as many as may run", async || {
            let most = self.most.load(Ordering::SeqCst);
            require(most == CAP, most)
        })
        .await;
    }
}

#[tokio::test]
async fn a_kind_with_a_cap_in_a_queue_of_its_own_waits_in_the_database() {
    let lane = QueueName::new("slow").unwrap();
    let capped = Capped::new(&lane).await;
    let jobs = capped.slow(&lane, 12).await;
    capped.runs_at_its_cap().await;
    // Another queue goes on meanwhile.
    let quick = capped.quick().await;
    capped.world.reaches(quick, State::Completed).await;
    for job in &jobs {
        let events = capped.world.events(*job).await;
        assert!(!events.contains(&"put_back".to_owned()), "{events:?}");
    }
    capped.finish(&jobs).await;
}

#[tokio::test]
async fn what_shares_a_queue_with_a_kind_at_its_cap_is_not_held_up() {
    let capped = Capped::new(&queue()).await;
    let jobs = capped.slow(&queue(), 40).await;
    capped.runs_at_its_cap().await;
    let quick = capped.quick().await;
    capped.world.reaches(quick, State::Completed).await;
    let mut put_back = 0;
    for job in &jobs {
        let events = capped.world.events(*job).await;
        put_back += usize::from(events.contains(&"put_back".to_owned()));
    }
    assert!(put_back > 0);
    capped.finish(&jobs).await;
}
