//! Does a job's history obey the rules?
//!
//! Owns the checks behind `fencepost verify`: a replay of each job's events
//! beside its row and outbox entries. Reads nothing itself; the store pages
//! through jobs and calls [`check`].

use std::collections::BTreeSet;

use crate::event::{EventRecord, EventType};
use crate::id::{Epoch, JobId};
use crate::lifecycle::State;

/// What is known of a job besides its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The job.
    pub job: JobId,
    /// Its state.
    pub state: State,
    /// Its epoch.
    pub epoch: Epoch,
    /// Attempts counted.
    pub attempts: u32,
    /// Attempts allowed.
    pub max_attempts: u32,
    /// Its outbox entries.
    pub outbox_entries: u32,
    /// Whether a result is stored.
    pub has_result: bool,
    /// Effects without a known outcome.
    pub open_effects: u32,
}

/// The rules, each with the sentence that a report prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// See [`Rule::sentence`], as for all of them.
    AcceptedFirst,
    /// Acceptance happens once.
    AcceptedOnce,
    /// Each claim raises the epoch, and nothing lowers it.
    EpochsRise,
    /// A claim needs a queued job.
    ClaimFromQueued,
    /// A report needs the claim it reports on.
    ReportUnderItsClaim,
    /// An ended job stays ended.
    OneEnd,
    /// The row agrees with its history.
    RowAgrees,
    /// A queued job has one entry.
    QueuedHasOneEntry,
    /// No other job has an entry.
    OnlyQueuedHasEntry,
    /// Results belong to completed jobs.
    ResultWhenCompleted,
    /// Attempts stay within their budget.
    AttemptsBounded,
    /// Open effects make a job unknown.
    OpenEffectIsUnknown,
    /// Nobody runs a job while a call of it has no known outcome.
    NoRunWithOpenEffect,
    /// A known outcome is used, not made again.
    NoRepeatedEffect,
    /// Decisions are about unknown jobs, and each is the only one.
    VerdictOnUnknown,
}

impl Rule {
    /// Every rule, in the order of a report.
    pub const ALL: [Self; 15] = [
        Self::AcceptedFirst,
        Self::AcceptedOnce,
        Self::EpochsRise,
        Self::ClaimFromQueued,
        Self::ReportUnderItsClaim,
        Self::OneEnd,
        Self::RowAgrees,
        Self::QueuedHasOneEntry,
        Self::OnlyQueuedHasEntry,
        Self::ResultWhenCompleted,
        Self::AttemptsBounded,
        Self::OpenEffectIsUnknown,
        Self::NoRunWithOpenEffect,
        Self::NoRepeatedEffect,
        Self::VerdictOnUnknown,
    ];

    /// The rule in a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::AcceptedFirst => {
                "nothing happens to a job, no publication either, before its acceptance"
            }
            Self::AcceptedOnce => "a job is accepted once",
            Self::EpochsRise => "epochs rise with every claim and never fall",
            Self::ClaimFromQueued => "only a queued job is claimed",
            Self::ReportUnderItsClaim => "a run is reported once, under the epoch that claimed it",
            Self::OneEnd => "a job that has ended stays ended unless it is retried or decided",
            Self::RowAgrees => "the job's row has the state and epoch of its last event",
            Self::QueuedHasOneEntry => "a queued job has exactly one outbox entry",
            Self::OnlyQueuedHasEntry => "a job that is not queued has no outbox entry",
            Self::ResultWhenCompleted => "a job has a result if and only if it is completed",
            Self::AttemptsBounded => "attempts never exceed their budget",
            Self::OpenEffectIsUnknown => "a job with an open effect is leased, unknown or given up",
            Self::NoRunWithOpenEffect => "no job is claimed while one of its effects is open",
            Self::NoRepeatedEffect => "what was settled or saved is not opened or saved again",
            Self::VerdictOnUnknown => "a verdict is on an unknown job, and leads out of it once",
        }
    }
}

/// A rule that a job breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The job.
    pub job: JobId,
    /// The rule.
    pub rule: Rule,
    /// The event at which it broke, where there is one.
    pub event: Option<i64>,
    /// What was seen.
    pub seen: String,
}

/// Replays a job's history, in the order of event ids, against the rules.
#[must_use]
pub fn check(job: &Snapshot, history: &[EventRecord]) -> Vec<Violation> {
    let mut replay = Replay {
        job,
        state: None,
        epoch: Epoch::ZERO,
        open: BTreeSet::new(),
        settled: BTreeSet::new(),
        violations: Vec::new(),
    };
    for event in history {
        replay.event(event);
    }
    replay.row();
    replay.violations
}

struct Replay<'a> {
    job: &'a Snapshot,
    state: Option<State>,
    epoch: Epoch,
    /// Effects without a known outcome.
    open: BTreeSet<String>,
    /// Effects and steps with one.
    settled: BTreeSet<String>,
    violations: Vec<Violation>,
}

impl Replay<'_> {
    fn broken(&mut self, rule: Rule, event: Option<i64>, seen: String) {
        self.violations.push(Violation {
            job: self.job.job,
            rule,
            event,
            seen,
        });
    }

    fn event(&mut self, event: &EventRecord) {
        let at = Some(event.id);
        let word = event.kind.as_str();
        match (self.state, event.kind) {
            (None, EventType::Accepted) => {}
            (None, _) => self.broken(Rule::AcceptedFirst, at, format!("`{word}` came first")),
            (Some(_), EventType::Accepted) => {
                self.broken(Rule::AcceptedOnce, at, "accepted again".to_owned());
            }
            (Some(_), _) => {}
        }
        let risen = event.epoch > self.epoch;
        if event.epoch < self.epoch || (event.kind == EventType::Claimed && !risen) {
            let seen = format!(
                "`{word}` under epoch {} after epoch {}",
                event.epoch, self.epoch
            );
            // A fenced write is by its nature one of an earlier epoch.
            if event.kind != EventType::Fenced {
                self.broken(Rule::EpochsRise, at, seen);
            }
        }
        self.effect(event);
        let Some(to) = event.kind.leads_to() else {
            return;
        };
        if let Some(from) = self.state {
            self.transition(from, event, to);
        }
        self.state = Some(to);
        self.epoch = self.epoch.max(event.epoch);
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what is not named here is judged by the row check alone"
    )]
    fn transition(&mut self, from: State, event: &EventRecord, to: State) {
        let at = Some(event.id);
        let seen = format!(
            "`{}` on a job that was {}",
            event.kind.as_str(),
            from.as_str()
        );
        match event.kind {
            EventType::Claimed if from.is_terminal() => self.broken(Rule::OneEnd, at, seen),
            EventType::Claimed if from != State::Queued => {
                self.broken(Rule::ClaimFromQueued, at, seen);
            }
            EventType::Completed | EventType::Failed | EventType::Released | EventType::Snoozed
                if from == State::Leased && event.epoch != self.epoch =>
            {
                let seen = format!(
                    "{seen} under epoch {}, reported under {}",
                    self.epoch, event.epoch
                );
                self.broken(Rule::ReportUnderItsClaim, at, seen);
            }
            EventType::Failed | EventType::Released | EventType::Snoozed | EventType::Reaped
                if from != State::Leased =>
            {
                self.broken(Rule::ReportUnderItsClaim, at, seen);
            }
            EventType::Completed if from.is_terminal() => self.broken(Rule::OneEnd, at, seen),
            EventType::Completed if from == State::Queued => {
                self.broken(Rule::ReportUnderItsClaim, at, seen);
            }
            EventType::Retried if !from.is_at_rest() => self.broken(Rule::OneEnd, at, seen),
            _ if from.is_terminal() && to != State::Queued => self.broken(Rule::OneEnd, at, seen),
            _ => {}
        }
    }

    /// Follows effects, steps and verdicts; their events name them.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other event leaves effects alone"
    )]
    fn effect(&mut self, event: &EventRecord) {
        let at = Some(event.id);
        let name = event.detail.clone().unwrap_or_default();
        match event.kind {
            EventType::EffectOpened | EventType::StepSaved if self.settled.contains(&name) => {
                let seen = format!("`{}` of `{name}`, which was settled", event.kind.as_str());
                self.broken(Rule::NoRepeatedEffect, at, seen);
            }
            EventType::EffectOpened => drop(self.open.insert(name)),
            EventType::StepSaved => drop(self.settled.insert(name)),
            EventType::EffectSettled => {
                self.open.remove(&name);
                self.settled.insert(name);
            }
            EventType::EffectDeclined => drop(self.open.remove(&name)),
            EventType::Claimed if !self.open.is_empty() => {
                let open: Vec<&str> = self.open.iter().map(String::as_str).collect();
                let seen = format!("claimed with `{}` open", open.join("`, `"));
                self.broken(Rule::NoRunWithOpenEffect, at, seen);
            }
            EventType::Verdict if self.state != Some(State::Unknown) => {
                let state = self.state.map_or("not there", State::as_str);
                let seen = format!("a verdict on a job that was {state}");
                self.broken(Rule::VerdictOnUnknown, at, seen);
            }
            _ => {}
        }
    }

    fn row(&mut self) {
        let job = self.job;
        if self.state != Some(job.state) || self.epoch > job.epoch {
            let history = self.state.map_or("no state", State::as_str);
            let seen = format!(
                "the row says {} at epoch {}, the history {history} at epoch {}",
                job.state.as_str(),
                job.epoch,
                self.epoch
            );
            self.broken(Rule::RowAgrees, None, seen);
        }
        let entries = job.outbox_entries;
        if job.state == State::Queued && entries != 1 {
            self.broken(
                Rule::QueuedHasOneEntry,
                None,
                format!("queued with {entries} entries"),
            );
        }
        if job.state != State::Queued && entries != 0 {
            let seen = format!("{} with {entries} entries", job.state.as_str());
            self.broken(Rule::OnlyQueuedHasEntry, None, seen);
        }
        if job.has_result != (job.state == State::Completed) {
            let result = if job.has_result {
                "a result"
            } else {
                "no result"
            };
            self.broken(
                Rule::ResultWhenCompleted,
                None,
                format!("{} with {result}", job.state.as_str()),
            );
        }
        if job.attempts > job.max_attempts {
            let seen = format!("{} attempts of {}", job.attempts, job.max_attempts);
            self.broken(Rule::AttemptsBounded, None, seen);
        }
        if job.open_effects > 0
            && !matches!(job.state, State::Leased | State::Unknown | State::Dead)
        {
            let seen = format!(
                "{} with {} open effects",
                job.state.as_str(),
                job.open_effects
            );
            self.broken(Rule::OpenEffectIsUnknown, None, seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn snapshot(state: State, epoch: i64) -> Snapshot {
        Snapshot {
            job: "018f0d5e-7a31-7c3a-9a39-0242ac120002".parse().unwrap(),
            state,
            epoch: Epoch(epoch),
            attempts: 1,
            max_attempts: 3,
            outbox_entries: u32::from(state == State::Queued),
            has_result: state == State::Completed,
            open_effects: 0,
        }
    }

    fn history(events: &[(EventType, i64)]) -> Vec<EventRecord> {
        let record = |(index, (kind, epoch)): (usize, &(EventType, i64))| EventRecord {
            id: i64::try_from(index).unwrap() + 1,
            epoch: Epoch(*epoch),
            kind: *kind,
            at: Timestamp::from_millis(0),
            actor: "test".into(),
            code: None,
            detail: None,
            count: 1,
            last_at: Timestamp::from_millis(0),
        };
        events.iter().enumerate().map(record).collect()
    }

    fn rules(job: &Snapshot, events: &[(EventType, i64)]) -> Vec<Rule> {
        check(job, &history(events))
            .into_iter()
            .map(|v| v.rule)
            .collect()
    }

    use EventType::{
        Accepted, Claimed, Completed, Dead, Failed, Fenced, Published, Reaped, Retried,
    };

    #[test]
    fn a_sound_life_breaks_nothing() {
        let job = snapshot(State::Completed, 3);
        let events = [
            (Accepted, 0),
            (Published, 0),
            (Claimed, 1),
            (Failed, 1),
            (Published, 1),
            (Claimed, 2),
            (Reaped, 2),
            (Claimed, 3),
            (Fenced, 2),
            (Completed, 3),
        ];
        assert_eq!(rules(&job, &events), []);
        let retried = [
            (Accepted, 0),
            (Claimed, 1),
            (Dead, 1),
            (Retried, 1),
            (Claimed, 2),
            (Completed, 2),
        ];
        assert_eq!(rules(&snapshot(State::Completed, 2), &retried), []);
    }

    #[test]
    fn each_broken_rule_is_named() {
        let done = snapshot(State::Completed, 1);
        let rows: [(&[(EventType, i64)], Rule); 7] = [
            (
                &[(Published, 0), (Accepted, 0), (Claimed, 1), (Completed, 1)],
                Rule::AcceptedFirst,
            ),
            (
                &[(Accepted, 0), (Accepted, 0), (Claimed, 1), (Completed, 1)],
                Rule::AcceptedOnce,
            ),
            (
                &[(Accepted, 0), (Claimed, 0), (Completed, 1)],
                Rule::EpochsRise,
            ),
            (
                &[(Accepted, 0), (Claimed, 1), (Claimed, 2), (Completed, 2)],
                Rule::ClaimFromQueued,
            ),
            (&[(Accepted, 0), (Completed, 1)], Rule::ReportUnderItsClaim),
            (
                &[(Accepted, 0), (Claimed, 1), (Completed, 1), (Completed, 1)],
                Rule::OneEnd,
            ),
            (&[(Accepted, 0), (Claimed, 1)], Rule::RowAgrees),
        ];
        for (events, rule) in rows {
            assert!(
                rules(&done, events).contains(&rule),
                "{rule:?}: {:?}",
                rules(&done, events)
            );
        }
    }

    #[test]
    fn effects_and_verdicts_are_followed() {
        use EventType::{EffectDeclined, EffectOpened, EffectSettled, StepSaved, Unknown, Verdict};
        let told = |events: &[(EventType, i64, &str)]| {
            let plain: Vec<(EventType, i64)> = events
                .iter()
                .map(|(kind, epoch, _)| (*kind, *epoch))
                .collect();
            let mut told = history(&plain);
            for (event, (_, _, name)) in told.iter_mut().zip(events) {
                event.detail = (!name.is_empty()).then(|| (*name).to_owned());
            }
            let rules = check(&snapshot(State::Completed, 2), &told).into_iter();
            rules.map(|violation| violation.rule).collect::<Vec<_>>()
        };
        let before = [
            (Accepted, 0, ""),
            (Claimed, 1, ""),
            (StepSaved, 1, "text"),
            (EffectOpened, 1, "mail"),
        ];
        let after = [(Claimed, 2, ""), (Completed, 2, "")];
        let life = |middle: &[(EventType, i64, &'static str)]| {
            told(&[&before[..], middle, &after[..]].concat())
        };
        let decided = [
            (Unknown, 1, ""),
            (Verdict, 1, "because"),
            (EffectSettled, 1, "mail"),
            (Retried, 1, ""),
        ];
        assert_eq!(life(&decided), []);
        let declined = [(EffectDeclined, 1, "mail"), (Failed, 1, "")];
        assert_eq!(life(&declined), []);
        assert_eq!(
            life(&[(Unknown, 1, ""), (Retried, 1, "")]),
            [Rule::NoRunWithOpenEffect]
        );
        let twice = [
            (EffectSettled, 1, "mail"),
            (EffectOpened, 1, "mail"),
            (Failed, 1, ""),
        ];
        assert_eq!(life(&twice), [Rule::NoRepeatedEffect]);
        let saved = [
            (EffectSettled, 1, "mail"),
            (StepSaved, 1, "text"),
            (Failed, 1, ""),
        ];
        assert_eq!(life(&saved), [Rule::NoRepeatedEffect]);
        let second = [&decided[..], &[(Verdict, 1, "again")]].concat();
        assert_eq!(life(&second), [Rule::VerdictOnUnknown]);
    }

    #[test]
    fn a_run_after_the_end_without_a_retry_is_found() {
        let events = [
            (Accepted, 0),
            (Claimed, 1),
            (Completed, 1),
            (Claimed, 2),
            (Completed, 2),
        ];
        assert!(rules(&snapshot(State::Completed, 2), &events).contains(&Rule::OneEnd));
    }

    #[test]
    fn rows_and_entries_must_agree() {
        let life = [(Accepted, 0)];
        let queued = snapshot(State::Queued, 0);
        assert_eq!(rules(&queued, &life), []);
        let lost = Snapshot {
            outbox_entries: 0,
            ..queued.clone()
        };
        assert_eq!(rules(&lost, &life), [Rule::QueuedHasOneEntry]);
        let twice = Snapshot {
            outbox_entries: 2,
            ..queued.clone()
        };
        assert_eq!(rules(&twice, &life), [Rule::QueuedHasOneEntry]);
        let done = [(Accepted, 0), (Claimed, 1), (Completed, 1)];
        let left = Snapshot {
            outbox_entries: 1,
            ..snapshot(State::Completed, 1)
        };
        assert_eq!(rules(&left, &done), [Rule::OnlyQueuedHasEntry]);
        let empty = Snapshot {
            has_result: false,
            ..snapshot(State::Completed, 1)
        };
        assert_eq!(rules(&empty, &done), [Rule::ResultWhenCompleted]);
        let over = Snapshot {
            attempts: 4,
            ..snapshot(State::Completed, 1)
        };
        assert_eq!(rules(&over, &done), [Rule::AttemptsBounded]);
        let open = Snapshot {
            open_effects: 1,
            ..snapshot(State::Completed, 1)
        };
        assert_eq!(rules(&open, &done), [Rule::OpenEffectIsUnknown]);
    }
}
