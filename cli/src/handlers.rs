//! What runs each configured kind in this program.

use std::path::PathBuf;

use anyhow::Context as _;
use fencepost_core::kind::{Builtin, Kind, Runner};
use fencepost_service::settings::process_environment;
use fencepost_worker::Builder;
use fencepost_worker::builtin::{DocumentExtract, Echo};
use fencepost_worker::command::CommandHandler;
use fencepost_worker::extract::Extractor;
use fencepost_worker::http::HttpHandler;

/// Registers what runs a kind here, if this program has it.
pub(crate) fn add(builder: Builder, kind: &Kind) -> anyhow::Result<Builder> {
    let name = kind.name.clone();
    Ok(match &kind.runner {
        Runner::Builtin(Builtin::Echo) => builder.handler(name, Echo),
        Runner::Builtin(Builtin::DocumentExtract) => {
            let (program, arguments) = guard("extract-guard");
            let extractor = Extractor::new(program, arguments);
            builder.handler(name, DocumentExtract::new(extractor))
        }
        Runner::Command(command) => {
            let inherited = command.inherit_env.iter();
            let inherited = inherited
                .filter_map(|name| Some((name.clone(), process_environment(name)?)))
                .collect();
            let handler = CommandHandler::new(
                guard("command-guard"),
                command.clone(),
                kind.safe_to_repeat,
                inherited,
            );
            builder.handler(name, handler)
        }
        Runner::Http(http) => {
            let handler = HttpHandler::new(http.clone(), kind.safe_to_repeat)
                .with_context(|| format!("kind `{name}`"))?;
            builder.handler(name, handler)
        }
        Runner::Registered => builder,
    })
}

/// This program again, with a verb that guards: the very file that runs, even
/// when another version lies in its place by now.
fn guard(verb: &str) -> (PathBuf, Vec<String>) {
    (PathBuf::from("/proc/self/exe"), vec![verb.to_owned()])
}
