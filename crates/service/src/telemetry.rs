//! Logs: to standard error, as text or JSON.

use std::error::Error;
use std::fmt;

use tracing_subscriber::EnvFilter;

/// The shape of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Starts logging. A second call does nothing: the first stands.
///
/// # Errors
/// The filter's own text when it is malformed.
pub fn start(filter: &str, format: LogFormat) -> Result<(), String> {
    let filter = EnvFilter::builder()
        .parse(filter)
        .map_err(|error| error.to_string())?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => builder
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // An error says that logging has been started already.
    drop(started);
    Ok(())
}

/// Shows an error and everything that caused it, joined by colons.
#[derive(Debug)]
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_shows_every_cause_once() {
        let inner = std::io::Error::other("disk full");
        let outer = std::io::Error::new(std::io::ErrorKind::InvalidData, inner);
        assert!(ErrorChain(&outer).to_string().contains("disk full"));
    }

    #[test]
    fn a_malformed_filter_is_an_error() {
        assert!(start("fencepost=loud=wrong", LogFormat::Text).is_err());
    }
}
