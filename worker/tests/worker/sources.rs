//! What every source promises, on the database and on RabbitMQ.

use std::time::Duration;

use fencepost_core::dispatch::JobRef;
use fencepost_core::fingerprint::Moment;
use fencepost_core::id::JobId;
use fencepost_store::Submit;
use fencepost_testkit::broker::SharedBroker;
use fencepost_worker::ack::Settlement;
use fencepost_worker::source::{Delivered, Poll, Source};
use tokio::time::timeout;

use crate::amqp;
use crate::setup::{PATIENCE, World, queue, submission};

/// How long nothing must come for it to count as nothing: long beside the
/// milliseconds in which it would.
const QUIET: Duration = Duration::from_millis(400);

/// A place that sources are made from.
enum Place {
    Database(World),
    Broker(World, SharedBroker),
}

impl Place {
    fn source(&self) -> Box<dyn Source> {
        match self {
            Self::Database(world) => Box::new(Poll::new(world.store.clone(), vec![queue()])),
            Self::Broker(_, broker) => Box::new(amqp::source(broker, 100)),
        }
    }

    /// A job that is due, and dispatched where there is a broker.
    async fn job(&self, key: &str) -> JobId {
        match self {
            Self::Database(world) => world.queued(key).await,
            Self::Broker(world, broker) => {
                let job = world.queued(key).await;
                amqp::publish(broker, &[job]).await;
                job
            }
        }
    }
}

async fn next(source: &mut dyn Source) -> Delivered {
    let next = timeout(PATIENCE, source.next()).await;
    next.expect("a delivery in time").expect("a live source")
}

fn ids(delivered: &Delivered) -> Vec<JobId> {
    delivered.jobs.iter().map(|job: &JobRef| job.id).collect()
}

/// 1. and 2. of the trait, and pausing.
async fn keeps_its_promises(place: Place) {
    let mut source = place.source();
    let first = place.job("first").await;
    let delivered = next(&mut *source).await;
    assert_eq!(ids(&delivered), [first]);
    assert!(source.is_live(delivered.token));
    assert!(
        timeout(QUIET, source.next()).await.is_err(),
        "what is in hand is not delivered twice"
    );

    // A delivery that is given up before it is taken is not lost.
    let second = place.job("second").await;
    for _ in 0..50 {
        let glance = timeout(Duration::from_micros(200), source.next()).await;
        if let Ok(found) = glance {
            assert_eq!(ids(&found.unwrap()), [second]);
            drop(source);
            source = place.source();
            break;
        }
    }

    // What was not settled comes again, after the end of whoever had it.
    source.close().await;
    let mut source = place.source();
    let mut again = [next(&mut *source).await, next(&mut *source).await];
    again.sort_by_key(ids);
    assert_eq!([ids(&again[0]), ids(&again[1])], [[first], [second]]);

    source.pause();
    assert!(timeout(QUIET, source.next()).await.is_err());
    let third = place.job("third").await;
    assert!(
        timeout(QUIET, source.next()).await.is_err(),
        "a paused source is silent"
    );
    source.resume();
    assert_eq!(ids(&next(&mut *source).await), [third]);
    source.settle(again[0].token, Settlement::Requeue);
    assert_eq!(ids(&next(&mut *source).await), [first]);
    source.close().await;
}

#[tokio::test]
async fn the_database_keeps_the_promises_of_a_source() {
    keeps_its_promises(Place::Database(World::new().await)).await;
}

#[tokio::test]
async fn rabbitmq_keeps_the_promises_of_a_source() {
    let broker = SharedBroker::new().await;
    keeps_its_promises(Place::Broker(World::new().await, broker)).await;
}

#[tokio::test]
async fn a_job_that_becomes_due_wakes_the_source() {
    let world = World::new().await;
    let mut poll = Poll::new(world.store.clone(), vec![queue()]);
    let later = Submit {
        run: Some(Moment::After(Duration::from_millis(700))),
        ..submission("later", "{}")
    };
    let later = world.submit(later).await;
    let due_at = world.job(later).await.run_at;
    assert_eq!(ids(&next(&mut poll).await), [later]);
    let late_by = world.store.now().since(due_at);
    assert!(world.store.now() >= due_at);
    // The slow poll behind it comes every second.
    assert!(late_by < Duration::from_millis(900), "{late_by:?}");
}

#[tokio::test]
async fn jobs_come_by_priority_and_then_in_their_order() {
    let world = World::new().await;
    let mut expected = Vec::new();
    for (key, priority) in [("a", 1), ("b", 5), ("c", 1), ("d", 9)] {
        let job = Submit {
            priority,
            ..submission(key, "{}")
        };
        expected.push((std::cmp::Reverse(priority), world.submit(job).await));
    }
    expected.sort();
    let mut poll = Poll::new(world.store.clone(), vec![queue()]);
    for (_, job) in expected {
        assert_eq!(ids(&next(&mut poll).await), [job]);
    }
}
