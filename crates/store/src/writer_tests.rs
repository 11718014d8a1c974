//! The queue of the writer: what shares a batch, what waits, what can be withdrawn.

use fencepost_core::id::{JobId, WorkerId};
use fencepost_core::outbox::DispatchRef;

use super::*;
use crate::contract::{Claim, ClaimJob, Redispatch, Release, Renew};

fn job(n: u128) -> JobId {
    JobId(uuid::Uuid::from_u128(n))
}

fn claim(n: u128) -> Command {
    ClaimJob {
        job: job(n),
        worker: WorkerId::new("w").unwrap(),
        lease: Duration::from_secs(30),
        epoch_leaves: false,
    }
    .into()
}

fn good(n: u128) -> Claim {
    Claim::issue(job(n), fencepost_core::id::Epoch(1))
}

fn renew(n: u128) -> Command {
    Renew {
        claim: good(n),
        lease: Duration::from_secs(30),
    }
    .into()
}

fn release(n: u128) -> Command {
    Release {
        claim: good(n),
        reason: "test",
    }
    .into()
}

fn filled(commands: impl IntoIterator<Item = Command>) -> Queue {
    let mut queue = Queue::default();
    for command in commands {
        drop(queue.push(command).unwrap());
    }
    queue
}

fn tickets(batch: &[Pending]) -> Vec<u64> {
    batch.iter().map(|pending| pending.ticket).collect()
}

#[test]
fn one_job_has_one_command_in_a_batch_and_the_order_is_kept() {
    let mut queue = filled([claim(1), release(1), claim(2), claim(1), release(2)]);
    assert_eq!(tickets(&queue.batch(Flush::Before)), [0, 2]);
    assert_eq!(tickets(&queue.batch(Flush::Before)), [1, 4]);
    assert_eq!(tickets(&queue.batch(Flush::Before)), [3]);
    assert_eq!(queue.bytes, 0);
}

#[test]
fn renewals_go_first_and_alone() {
    let mut queue = filled([claim(1), renew(2), claim(3), renew(4)]);
    assert_eq!(queue.wanted(), Some(Flush::NotOnItsOwn));
    assert_eq!(tickets(&queue.batch(Flush::NotOnItsOwn)), [1, 3]);
    assert_eq!(tickets(&queue.batch(Flush::NotOnItsOwn)), [0, 2]);
}

#[test]
fn a_command_that_must_be_flushed_waits_for_a_flushed_commit() {
    let mut queue = filled([claim(1), release(2), claim(2)]);
    assert_eq!(tickets(&queue.batch(Flush::NotOnItsOwn)), [0]);
    assert_eq!(queue.wanted(), Some(Flush::Before));
    assert_eq!(tickets(&queue.batch(Flush::Before)), [1]);
    assert_eq!(tickets(&queue.batch(Flush::Before)), [2]);
}

#[test]
fn a_batch_is_bounded_in_commands_and_bytes() {
    let mut queue = filled((0..600).map(claim));
    assert_eq!(queue.batch(Flush::Before).len(), BATCH_COMMANDS_MAX);
    assert_eq!(queue.batch(Flush::Before).len(), 600 - BATCH_COMMANDS_MAX);

    let heavy = || {
        Redispatch {
            entries: vec![DispatchRef {
                seq: 1,
                dispatch_no: 1,
            }],
        }
        .into()
    };
    let result = |n| {
        crate::contract::Complete {
            claim: good(n),
            result: "x".repeat(3 << 20),
        }
        .into()
    };
    let mut queue = filled([heavy(), result(1), result(2)]);
    assert_eq!(tickets(&queue.batch(Flush::Before)), [0, 1]);
    assert_eq!(tickets(&queue.batch(Flush::Before)), [2]);
}

#[test]
fn what_no_batch_has_taken_can_be_withdrawn() {
    let mut queue = filled([claim(1), claim(1), renew(2)]);
    assert!(queue.withdraw(1));
    assert!(!queue.withdraw(1));
    assert!(queue.withdraw(2));
    assert_eq!(tickets(&queue.batch(Flush::Before)), [0]);
    assert!(!queue.withdraw(0));
    assert_eq!(queue.bytes, 0);
}

#[test]
fn a_full_queue_refuses_at_once_but_takes_renewals() {
    let mut queue = filled((0..WAITING_COMMANDS_MAX as u128).map(claim));
    assert!(matches!(queue.push(claim(1)), Err(StoreError::Overloaded)));
    assert!(queue.push(renew(1)).is_ok());
}
