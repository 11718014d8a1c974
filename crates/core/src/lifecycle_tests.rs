//! The lifecycle over every state, event and combination of facts, and row by row.

use super::*;

const EVENTS: [Event; 15] = [
    Event::Claim,
    Event::Complete,
    Event::Fail(Failure::Repeatable),
    Event::Fail(Failure::Permanent),
    Event::Release,
    Event::Snooze,
    Event::Reap,
    Event::Cancel(Cancel::Ask),
    Event::Cancel(Cancel::Force),
    Event::Retry,
    Event::Verdict(Verdict::Happened),
    Event::Verdict(Verdict::HappenedAndWasAll),
    Event::Verdict(Verdict::DidNotHappen),
    Event::Verdict(Verdict::Complete),
    Event::Verdict(Verdict::Abandon),
];

/// A live claim on a due job with everything left.
const GOOD: Facts = Facts {
    epoch_is_current: true,
    lease_until: Timestamp::MAX,
    lease_expired: false,
    deadline_passed: false,
    due: true,
    attempts_spent: false,
    retry_fits: true,
    snoozes_spent: false,
    effect_open: false,
    effect_settled: false,
    cancel_asked: false,
    hold_on_crash: false,
};

fn every_case() -> impl Iterator<Item = (State, Event, Facts)> {
    State::ALL.into_iter().flat_map(|state| {
        EVENTS.into_iter().flat_map(move |event| {
            (0..1_u32 << 11).map(move |bits| {
                let bit = |n: u32| bits & (1 << n) != 0;
                let facts = Facts {
                    epoch_is_current: bit(0),
                    lease_until: Timestamp::MAX,
                    lease_expired: bit(1),
                    deadline_passed: bit(2),
                    due: bit(3),
                    attempts_spent: bit(4),
                    retry_fits: bit(5),
                    snoozes_spent: bit(6),
                    effect_open: bit(7),
                    effect_settled: bit(8),
                    cancel_asked: bit(9),
                    hold_on_crash: bit(10),
                };
                (state, event, facts)
            })
        })
    })
}

fn is_report(event: Event) -> bool {
    matches!(
        event,
        Event::Complete | Event::Fail(_) | Event::Release | Event::Snooze
    )
}

#[test]
fn every_case_obeys_the_rules() {
    let mut cases = 0;
    for (state, event, facts) in every_case() {
        cases += 1;
        let step = next(state, event, &facts);
        let case = (state, event, facts, step);
        let Step::Move(moved) = step else { continue };

        assert!(
            !state.is_terminal() || event == Event::Retry,
            "an ended job moves by retry alone: {case:?}"
        );
        assert!(
            state != State::Completed,
            "a completed job never moves: {case:?}"
        );
        assert_eq!(
            moved.epoch == EpochChange::Raise,
            event == Event::Claim
                || (event == Event::Cancel(Cancel::Force) && state == State::Leased),
            "only a claim and a forced cancellation of a running job raise the epoch: {case:?}"
        );
        assert_eq!(
            moved.to == State::Leased,
            event == Event::Claim,
            "only a claim leads to leased: {case:?}"
        );
        if is_report(event) {
            assert!(
                facts.epoch_is_current && !facts.lease_expired && !facts.deadline_passed,
                "a report needs a good claim: {case:?}"
            );
        }
        if state == State::Leased && facts.effect_open {
            assert_eq!(
                moved.to,
                State::Unknown,
                "every exit with an open effect is unknown: {case:?}"
            );
        }
        if state == State::Leased && facts.cancel_asked {
            assert_ne!(
                moved.to,
                State::Queued,
                "a cancel asked for is kept: {case:?}"
            );
        }
        if moved.to == State::Unknown {
            assert!(
                facts.effect_open || (event == Event::Reap && facts.hold_on_crash),
                "unknown needs an open effect or a held kind: {case:?}"
            );
        }
        if state == State::Unknown {
            assert!(
                matches!(event, Event::Verdict(_)),
                "unknown is left by a verdict alone: {case:?}"
            );
        }
        if moved.to == State::Queued && state == State::Leased && event == Event::Reap {
            assert!(!facts.attempts_spent && !facts.deadline_passed, "{case:?}");
        }
        assert_eq!(
            matches!(moved.to, State::Dead | State::Cancelled | State::Unknown),
            moved
                .why
                .is_some_and(|why| moved.to != State::Queued || why != Why::WorkerLost),
            "every end but completed says why: {case:?}"
        );
        if moved.attempts == AttemptsChange::GiveBack {
            assert!(matches!(event, Event::Release | Event::Snooze), "{case:?}");
        }
    }
    assert_eq!(cases, 6 * 15 * 2_048);
}

#[test]
fn a_refused_event_says_why_it_was_refused() {
    for (state, event, facts) in every_case() {
        let Step::Refuse(refusal) = next(state, event, &facts) else {
            continue;
        };
        let fits = match refusal {
            Refusal::Claim(_) => event == Event::Claim,
            Refusal::Fenced(_) => is_report(event),
            Refusal::NotExpired => event == Event::Reap && !facts.deadline_passed,
            Refusal::EffectOpen => event == Event::Retry && facts.effect_open,
            Refusal::State(named) => named == state,
        };
        assert!(fits, "{state:?} {event:?} {facts:?} {refusal:?}");
    }
}

fn to(state: State, event: Event, facts: Facts) -> (State, Option<Why>) {
    match next(state, event, &facts) {
        Step::Move(moved) => (moved.to, moved.why),
        other @ (Step::AskToCancel | Step::Refuse(_)) => {
            panic!("{state:?} {event:?} did not move: {other:?}")
        }
    }
}

#[test]
fn the_table_of_a_healthy_life() {
    use State::{Cancelled, Completed, Dead, Leased, Queued};
    let spent = Facts {
        attempts_spent: true,
        ..GOOD
    };
    let late = Facts {
        retry_fits: false,
        ..GOOD
    };
    let rows = [
        (Queued, Event::Claim, GOOD, Leased, None),
        (Leased, Event::Complete, GOOD, Completed, None),
        (Leased, Event::Complete, spent, Completed, None),
        (Leased, Event::Fail(Failure::Repeatable), GOOD, Queued, None),
        (
            Leased,
            Event::Fail(Failure::Repeatable),
            spent,
            Dead,
            Some(Why::AsReported),
        ),
        (
            Leased,
            Event::Fail(Failure::Repeatable),
            late,
            Dead,
            Some(Why::DeadlineExceeded),
        ),
        (
            Leased,
            Event::Fail(Failure::Permanent),
            GOOD,
            Dead,
            Some(Why::AsReported),
        ),
        (Leased, Event::Release, spent, Queued, None),
        (Leased, Event::Snooze, spent, Queued, None),
        (
            Leased,
            Event::Snooze,
            Facts {
                snoozes_spent: true,
                ..GOOD
            },
            Dead,
            Some(Why::SnoozesSpent),
        ),
        (
            Queued,
            Event::Cancel(Cancel::Ask),
            GOOD,
            Cancelled,
            Some(Why::Cancelled),
        ),
        (Dead, Event::Retry, GOOD, Queued, None),
        (Cancelled, Event::Retry, GOOD, Queued, None),
        (
            Queued,
            Event::Reap,
            Facts {
                deadline_passed: true,
                ..GOOD
            },
            Dead,
            Some(Why::DeadlineExceeded),
        ),
    ];
    for (from, event, facts, end, why) in rows {
        assert_eq!(to(from, event, facts), (end, why), "{from:?} {event:?}");
    }
}

#[test]
fn the_reaper_decides_in_its_order() {
    let expired = Facts {
        lease_expired: true,
        ..GOOD
    };
    let all = Facts {
        effect_open: true,
        hold_on_crash: true,
        cancel_asked: true,
        deadline_passed: true,
        attempts_spent: true,
        ..expired
    };
    let held = Facts {
        effect_open: false,
        ..all
    };
    let asked = Facts {
        hold_on_crash: false,
        ..held
    };
    let late = Facts {
        cancel_asked: false,
        ..asked
    };
    let spent = Facts {
        deadline_passed: false,
        ..late
    };
    let rows = [
        (all, State::Unknown, Why::EffectOpen),
        (held, State::Unknown, Why::HeldOnCrash),
        (asked, State::Cancelled, Why::Cancelled),
        (late, State::Dead, Why::DeadlineExceeded),
        (spent, State::Dead, Why::WorkerLost),
        (expired, State::Queued, Why::WorkerLost),
    ];
    for (facts, end, why) in rows {
        assert_eq!(
            to(State::Leased, Event::Reap, facts),
            (end, Some(why)),
            "{facts:?}"
        );
    }
    assert_eq!(
        next(State::Leased, Event::Reap, &GOOD),
        Step::Refuse(Refusal::NotExpired)
    );
}

#[test]
fn a_lease_that_has_run_out_is_good_for_nothing() {
    let expired = Facts {
        lease_expired: true,
        ..GOOD
    };
    for event in EVENTS.into_iter().filter(|event| is_report(*event)) {
        assert_eq!(
            next(State::Leased, event, &expired),
            Step::Refuse(Refusal::Fenced(Fenced::LeaseExpired))
        );
    }
    let late = Facts {
        deadline_passed: true,
        ..GOOD
    };
    assert_eq!(fence(State::Leased, &late), Some(Fenced::DeadlinePassed));
}

#[test]
fn a_cancel_that_was_asked_for_ends_every_exit_that_is_not_terminal() {
    let asked = Facts {
        cancel_asked: true,
        ..GOOD
    };
    for event in [
        Event::Fail(Failure::Repeatable),
        Event::Release,
        Event::Snooze,
    ] {
        assert_eq!(
            to(State::Leased, event, asked),
            (State::Cancelled, Some(Why::Cancelled)),
            "{event:?}"
        );
    }
    assert_eq!(
        to(State::Leased, Event::Complete, asked),
        (State::Completed, None)
    );
    let done = Facts {
        effect_settled: true,
        ..asked
    };
    assert_eq!(
        to(State::Leased, Event::Release, done),
        (State::Cancelled, Some(Why::CancelledAfterEffect))
    );
}

#[test]
fn a_verdict_leaves_unknown_and_nothing_else() {
    let rows = [
        (Verdict::Happened, State::Queued),
        (Verdict::HappenedAndWasAll, State::Completed),
        (Verdict::DidNotHappen, State::Queued),
        (Verdict::Complete, State::Completed),
        (Verdict::Abandon, State::Dead),
    ];
    for (verdict, end) in rows {
        assert_eq!(to(State::Unknown, Event::Verdict(verdict), GOOD).0, end);
        assert_eq!(
            next(State::Queued, Event::Verdict(verdict), &GOOD),
            Step::Refuse(Refusal::State(State::Queued))
        );
    }
}

#[test]
fn every_reason_has_a_valid_code_and_a_sentence() {
    for why in [
        Why::DeadlineExceeded,
        Why::WorkerLost,
        Why::Cancelled,
        Why::CancelledAfterEffect,
        Why::EffectOpen,
        Why::HeldOnCrash,
        Why::SnoozesSpent,
        Why::Abandoned,
    ] {
        assert!(crate::id::ErrorCode::new(why.code()).is_ok(), "{why:?}");
        assert!(!why.message().is_empty());
    }
}
