//! Probes that ask by themselves.
//!
//! Owns when: a kind's probe asks about each of its unknown effects at its own
//! pace, beginning one pause after the job became unknown, since the call may
//! still be on its way. One process leads, as an optimisation: two that ask give
//! the same verdict, and the store takes the first.
//!
//! May crash anywhere: what was not decided is asked about again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::error_text::ErrorText;
use fencepost_core::id::{KindName, WorkerId};
use fencepost_store::{
    JobFilter, Lead, Leadership, Resign, Resolve, Resolved, Scope, Store, StoreError, UnknownEffect,
};
use tokio::time::{Instant, sleep_until};

use super::{Answer, Probe, Question};

/// Unknown jobs that are read at once.
const PAGE: u32 = 100;

/// The office that is led.
const OFFICE: &str = "prober";

/// How long it leads without renewal, beside the time of a round.
const LEAD: Duration = Duration::from_secs(30);

/// A probe with its pace.
#[derive(Debug)]
struct Scheduled {
    probe: Arc<dyn Probe>,
    every: Duration,
    is_whole_job: bool,
    next: Instant,
}

/// Asks, and decides by the answers.
#[derive(Debug)]
pub struct Prober {
    store: Store,
    id: WorkerId,
    probes: BTreeMap<KindName, Scheduled>,
}

impl Prober {
    /// On a store; `id` is one life of one process.
    #[must_use]
    pub fn new(store: Store, id: WorkerId) -> Self {
        Self {
            store,
            id,
            probes: BTreeMap::new(),
        }
    }

    /// Asks about a kind's effects with a probe, at this pace. `is_whole_job` says
    /// that the effect is all there is of a job: it completes when it happened.
    #[must_use]
    pub fn probe(
        mut self,
        kind: KindName,
        probe: Arc<dyn Probe>,
        every: Duration,
        is_whole_job: bool,
    ) -> Self {
        let scheduled = Scheduled {
            probe,
            every,
            is_whole_job,
            next: Instant::now() + every,
        };
        self.probes.insert(kind, scheduled);
        self
    }

    /// Runs until `shutdown` resolves.
    ///
    /// # Cancel safety
    /// Safe: a question that is not answered is asked again.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        while let Some(next) = self.probes.values().map(|probe| probe.next).min() {
            tokio::select! {
                () = &mut shutdown => break,
                () = sleep_until(next) => {}
            }
            let asked = tokio::select! {
                () = &mut shutdown => break,
                asked = self.round() => asked,
            };
            if let Err(error) = asked {
                tracing::warn!(%error, "unknown jobs could not be asked about; trying again");
            }
        }
        let resign = Resign {
            name: OFFICE.to_owned(),
            holder: self.id.clone(),
        };
        if let Err(error) = self.store.resign(resign).await {
            tracing::debug!(%error, "could not resign; the lease will end");
        }
    }

    /// Asks with every probe whose time has come.
    async fn round(&mut self) -> Result<(), StoreError> {
        let now = Instant::now();
        let due: Vec<KindName> = self
            .probes
            .iter_mut()
            .filter(|(_, probe)| probe.next <= now)
            .map(|(kind, probe)| {
                probe.next = now + probe.every;
                kind.clone()
            })
            .collect();
        let lead = Lead {
            name: OFFICE.to_owned(),
            holder: self.id.clone(),
            hold: LEAD,
        };
        if !matches!(self.store.lead(lead).await?, Leadership::Leader { .. }) {
            return Ok(());
        }
        for kind in due {
            if let Some(scheduled) = self.probes.get(&kind) {
                self.ask_about(&kind, scheduled).await?;
            }
        }
        Ok(())
    }

    async fn ask_about(&self, kind: &KindName, with: &Scheduled) -> Result<(), StoreError> {
        let filter = JobFilter {
            kind: Some(kind.clone()),
            ..JobFilter::default()
        };
        let mut after = None;
        loop {
            let page = self.store.all_unknown(&filter, after, PAGE).await?;
            for unknown in &page.effects {
                let now = self.store.now();
                if now.since(unknown.since) < with.every {
                    continue;
                }
                if let Some(question) = Question::of(unknown) {
                    let answer = with.probe.ask(&question, now).await;
                    self.decide(unknown, question, answer, with.is_whole_job)
                        .await?;
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn decide(
        &self,
        unknown: &UnknownEffect,
        question: Question,
        answer: Answer,
        is_whole_job: bool,
    ) -> Result<(), StoreError> {
        let Some(decision) = answer.decision(is_whole_job) else {
            tracing::debug!(job = %unknown.job, ?answer, "the probe cannot say");
            return Ok(());
        };
        let resolve = Resolve {
            scope: Scope {
                tenant: unknown.tenant.clone(),
                owner: None,
            },
            job: unknown.job,
            effect: Some(question.effect),
            decision,
            reason: ErrorText::new("the probe asked the outside system"),
            evidence: None,
            deadline: None,
            actor: format!("probe@{}", self.id),
        };
        match self.store.resolve(resolve).await? {
            Resolved::Decided(job) => {
                tracing::info!(job = %job.id, state = job.state.as_str(), "a probe decided about an unknown job");
            }
            // A person was first.
            Resolved::Conflict(_)
            | Resolved::NoOpenEffect
            | Resolved::WhichEffect(_)
            | Resolved::DeadlineUnusable
            | Resolved::NotFound => {}
        }
        Ok(())
    }
}
