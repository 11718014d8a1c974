//! One relay is active, others stand by.
//!
//! An optimisation, not a safeguard: two leaders at once publish twice and
//! break nothing. The row is the database's; its clock rules.

use std::time::Duration;

use fencepost_core::id::WorkerId;
use fencepost_store::{Lead, Leadership, Resign, Store};
use tokio::time::Instant;

/// Bids in a leader's time.
const BIDS_PER_LEASE: u32 = 4;

/// The longest pause of a standby between two bids.
const BID_MAX: Duration = Duration::from_secs(2);

/// A place in the line for one office.
#[derive(Debug)]
pub(crate) struct Office {
    store: Store,
    name: &'static str,
    holder: WorkerId,
    hold: Duration,
    leads: bool,
    bid_at: Instant,
}

impl Office {
    pub(crate) fn new(store: Store, name: &'static str, holder: WorkerId, hold: Duration) -> Self {
        Self {
            store,
            name,
            holder,
            hold,
            leads: false,
            bid_at: Instant::now(),
        }
    }

    /// Bids when it is time, and says whether we lead.
    pub(crate) async fn leads(&mut self) -> bool {
        let now = Instant::now();
        if now < self.bid_at {
            return self.leads;
        }
        self.bid_at = now + (self.hold / BIDS_PER_LEASE).min(BID_MAX);
        let bid = Lead {
            name: self.name.to_owned(),
            holder: self.holder.clone(),
            hold: self.hold,
        };
        let leads = match self.store.lead(bid).await {
            Ok(Leadership::Leader { term }) => {
                if !self.leads {
                    tracing::info!(office = self.name, term, "leads");
                }
                true
            }
            Ok(Leadership::Standby { until }) => {
                if self.leads {
                    tracing::warn!(office = self.name, "lost the lead; standing by");
                } else {
                    tracing::debug!(office = self.name, %until, "stands by");
                }
                false
            }
            Err(error) => {
                tracing::debug!(office = self.name, %error, "the bid got no answer");
                false
            }
        };
        self.leads = leads;
        leads
    }

    /// Gives the office up, so that a standby need not wait.
    pub(crate) async fn resign(&self) {
        if !self.leads {
            return;
        }
        let resign = Resign {
            name: self.name.to_owned(),
            holder: self.holder.clone(),
        };
        if let Err(error) = self.store.resign(resign).await {
            tracing::debug!(office = self.name, %error, "could not resign; the lease will end");
        }
    }
}
