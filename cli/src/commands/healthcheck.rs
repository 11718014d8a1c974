//! `fencepost healthcheck`: for images that have no shell and no curl.

use std::time::Duration;

use clap::Args;

use crate::exit::{Exit, Failed};
use crate::output;

/// A healthy process answers at once.
const LIMIT: Duration = Duration::from_secs(5);

/// Ask a process whether it is ready; the exit code is the answer.
#[derive(Debug, Args)]
pub(crate) struct Healthcheck {
    /// Only whether it is alive, not whether it is ready
    #[arg(long)]
    alive: bool,
}

impl Healthcheck {
    /// Asks the health listener if one is configured, else the API.
    pub(crate) async fn run(self, url: &str, health_listen: Option<&str>) -> Result<Exit, Failed> {
        let base = health_listen.map_or_else(
            || url.trim_end_matches('/').to_owned(),
            |address| format!("http://{address}"),
        );
        let path = if self.alive { "/healthz" } else { "/readyz" };
        let failed = |error: reqwest::Error| {
            let why = if error.is_timeout() {
                "no answer in time"
            } else {
                "nothing answers there"
            };
            Failed::new(Exit::Unavailable, format!("{base}: {why}"))
        };
        let client = reqwest::Client::builder()
            .timeout(LIMIT)
            .build()
            .map_err(failed)?;
        let answer = client
            .get(format!("{base}{path}"))
            .send()
            .await
            .map_err(failed)?;
        let healthy = answer.status().is_success();
        output::line(answer.text().await.map_err(failed)?);
        Ok(if healthy { Exit::Done } else { Exit::False })
    }
}
