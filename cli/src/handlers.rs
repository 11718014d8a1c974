//! What runs each configured kind in this program.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use fencepost_core::kind::{Asks, Builtin, Command, Kind, Runner};
use fencepost_service::settings::process_environment;
use fencepost_worker::Builder;
use fencepost_worker::builtin::{DocumentExtract, DocumentPrepare, Echo};
use fencepost_worker::command::CommandHandler;
use fencepost_worker::extract::Extractor;
use fencepost_worker::http::HttpHandler;
use fencepost_worker::planner::{OpenAiPlanner, Planner, StubPlanner};
use fencepost_worker::probe::{CommandProbe, HttpProbe, Probe};

/// Registers what runs a kind here, if this program has it.
pub(crate) fn add(builder: Builder, kind: &Kind) -> anyhow::Result<Builder> {
    let name = kind.name.clone();
    Ok(match &kind.runner {
        Runner::Builtin(Builtin::Echo) => builder.handler(name, Echo),
        Runner::Builtin(Builtin::DocumentExtract) => {
            builder.handler(name, DocumentExtract::new(extractor()))
        }
        Runner::Builtin(Builtin::DocumentPrepare) => {
            let planner: Arc<dyn Planner> = match &kind.planner {
                None => Arc::new(StubPlanner),
                Some(openai) => {
                    Arc::new(OpenAiPlanner::new(openai).with_context(|| format!("kind `{name}`"))?)
                }
            };
            builder.handler(name, DocumentPrepare::new(extractor(), planner))
        }
        Runner::Command(command) => builder.handler(name, guarded(command, kind.safe_to_repeat)),
        Runner::Http(http) => {
            let handler = HttpHandler::new(http.clone(), kind.safe_to_repeat)
                .with_context(|| format!("kind `{name}`"))?;
            builder.handler(name, handler)
        }
        Runner::Registered => builder,
    })
}

fn extractor() -> Extractor {
    let (program, arguments) = guard("extract-guard");
    Extractor::new(program, arguments)
}

fn guarded(command: &Command, safe_to_repeat: bool) -> CommandHandler {
    let inherited = command.inherit_env.iter();
    let inherited = inherited
        .filter_map(|name| Some((name.clone(), process_environment(name)?)))
        .collect();
    let guard = guard("command-guard");
    CommandHandler::new(guard, command.clone(), safe_to_repeat, inherited)
}

/// What asks about effects of a kind, if its settings name something.
pub(crate) fn probe(kind: &Kind) -> anyhow::Result<Option<Arc<dyn Probe>>> {
    let Some(probe) = &kind.probe else {
        return Ok(None);
    };
    Ok(Some(match &probe.asks {
        Asks::Command(command) => {
            Arc::new(CommandProbe::new(guarded(command, true), probe.timeout))
        }
        Asks::Http(http) => {
            let mut http = http.clone();
            http.timeout = probe.timeout;
            let handler = HttpHandler::new(http, true)
                .with_context(|| format!("the probe of kind `{}`", kind.name))?;
            Arc::new(HttpProbe::new(handler))
        }
    }))
}

/// Whether an effect is all there is of a job of this kind.
pub(crate) fn is_one_effect(kind: &Kind) -> bool {
    matches!(kind.runner, Runner::Command(_) | Runner::Http(_))
}

/// This program again, with a verb that guards: the very file that runs, even
/// when another version lies in its place by now.
fn guard(verb: &str) -> (PathBuf, Vec<String>) {
    (PathBuf::from("/proc/self/exe"), vec![verb.to_owned()])
}
