//! Licences, bans, sources and advisories, by cargo-deny.
//!
//! Owns where cargo-deny comes from; its rules are in `deny.toml`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::timeout;

use crate::process::{Signals, Stopped, cargo, program};

/// The version whose rules `deny.toml` is written for; another may read it otherwise.
const VERSION: &str = "0.20.2";

/// The database of advisories is a few megabytes; a network that drops
/// packets instead of refusing them must not hold the build up.
const FETCH_LIMIT: Duration = Duration::from_mins(2);

/// What keeps a first install at about a minute: the tool runs for seconds.
const INSTALL_PROFILE: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
];

/// Checks the dependencies; the answer is what could not be checked, if anything.
///
/// # Errors
/// When a rule is broken, or there is no cargo-deny to be had.
pub(crate) async fn check(
    root: &Path,
    tools: &Path,
    signals: &mut Signals,
) -> Result<Option<String>> {
    let tool = find_or_install(root, tools, signals).await?;
    let deny = |words: &[&str]| {
        let selection = &["--workspace", "--all-features", "--locked"];
        program(root, &tool, &[selection, words].concat())
    };
    let rules = deny(&[
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]);
    signals.run(rules).await?;

    let fetch = deny(&["fetch", "db"]);
    match timeout(FETCH_LIMIT, signals.run(fetch)).await {
        Ok(Ok(())) => {
            signals
                .run(deny(&["--offline", "check", "advisories"]))
                .await?;
            Ok(None)
        }
        Ok(Err(error)) if error.is::<Stopped>() => Err(error),
        Ok(Err(_)) | Err(_) => Ok(Some(
            "advisories NOT checked: their database cannot be fetched from here".to_owned(),
        )),
    }
}

/// The tool that is installed in the right version, else one below `tools`.
async fn find_or_install(root: &Path, tools: &Path, signals: &mut Signals) -> Result<OsString> {
    let own = tools.join("bin").join("cargo-deny");
    let wanted = format!("cargo-deny {VERSION}");
    for candidate in [PathBuf::from("cargo-deny"), own.clone()] {
        match signals
            .output(program(root, &candidate, &["--version"]))
            .await
        {
            Ok(version) if version.trim() == wanted => return Ok(candidate.into()),
            Err(error) if error.is::<Stopped>() => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    println!("installing {wanted} into {}", tools.display());
    let mut install = cargo(root, &["install", "--locked", "cargo-deny"]);
    install
        .args(["--version", VERSION, "--root"])
        .arg(tools)
        .envs(INSTALL_PROFILE)
        // Its own, in a place of its own: it is none of the workspace's.
        .env_remove("CARGO_TARGET_DIR");
    let installed = signals.run(install).await;
    installed.context("cargo-deny cannot be installed")?;
    Ok(own.into())
}
