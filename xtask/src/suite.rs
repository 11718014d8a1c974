//! `cargo xtask test`: every test, on a machine with only a toolchain.
//!
//! Owns the order of things and what tests are told through the environment:
//! the broker, and the program that tests across processes run.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::{Signals, cargo};
use crate::services::{Broker, Given};

/// Where tests across processes find the `fencepost` program.
const PROGRAM_VARIABLE: &str = "FENCEPOST_TEST_BIN";

/// Set to `1` when scenarios run with their literal times, not scaled down.
const FULL_VARIABLE: &str = "FENCEPOST_TEST_FULL";

/// One selection for everything that is compiled, so that nothing is compiled
/// twice with other features.
const EVERYTHING: [&str; 2] = ["--workspace", "--all-features"];

/// How long scenarios take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// Scaled down, to be run all the time.
    Scaled,
    /// As a user would see them.
    Literal,
}

/// Runs the tests; `arguments` narrow them down.
///
/// # Errors
/// When there is no broker, something does not compile, or a test fails.
pub(crate) async fn run(
    root: &Path,
    given: &Given,
    times: Times,
    profile: Option<&str>,
    arguments: &[String],
    signals: &mut Signals,
) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_narrowed = arguments.iter().any(|argument| selects_package(argument));
    let selected = if is_narrowed { &[] } else { &EVERYTHING[..] };
    let program = build(root, selected, signals).await?;
    let broker = Broker::find_or_start(given, signals).await?;
    let run = |words: &[&str]| {
        let mut command = cargo(root, words);
        command
            .envs(broker.exports())
            .env(PROGRAM_VARIABLE, &program);
        if times == Times::Literal {
            command.env(FULL_VARIABLE, "1");
        }
        command
    };
    // Before the rest, so that what the runner says of the rest stands last.
    if arguments.is_empty() {
        let documentation = [&["test", "--doc"], &EVERYTHING[..]].concat();
        signals.run(run(&documentation)).await?;
    }
    if signals
        .answers(cargo(root, &["nextest", "--version"]))
        .await?
    {
        let profile = profile.map_or(vec![], |name| vec!["--profile", name]);
        let words = [&["nextest", "run"], selected, &profile, &arguments].concat();
        signals.run(run(&words)).await
    } else {
        eprintln!(
            "cargo-nextest is not installed: using `cargo test`, which is slower and puts no limit \
             on a test's time; `cargo install --locked cargo-nextest` is recommended"
        );
        let words = [&["test", "--tests", "--no-fail-fast"], selected, &arguments].concat();
        signals.run(run(&words)).await
    }
}

/// Runs the test of the compose stack against this machine's Docker engine.
///
/// # Errors
/// When there is no engine, something does not compile, or the stack fails it.
pub(crate) async fn compose(root: &Path, signals: &mut Signals) -> Result<()> {
    let program = build(root, &[], signals).await?;
    let mut test = cargo(
        root,
        &["run", "--package", "fencepost-tests", "--bin", "compose"],
    );
    test.env(PROGRAM_VARIABLE, program);
    signals.run(test).await
}

/// Compiles what will be run and gives the path of the `fencepost` program.
async fn build(root: &Path, selected: &[&str], signals: &mut Signals) -> Result<String> {
    let mut words = vec!["build", "--message-format=json-render-diagnostics"];
    if selected.is_empty() {
        words.extend(["--package", "fencepost", "--package", "fencepost-examples"]);
    } else {
        // The tests too: alone, the program would have other features, and
        // half of its dependencies would be compiled once more.
        words.extend(selected);
        words.extend(["--bins", "--tests"]);
    }
    let messages = signals.output(cargo(root, &words)).await?;
    find_program(&messages).context("cargo built no program called fencepost")
}

/// The path in the message of the `fencepost` program, not of its tests.
fn find_program(messages: &str) -> Option<String> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let is_program = |message: &Value| {
        message.pointer("/target/name") == Some(&Value::from("fencepost"))
            && message.pointer("/target/kind/0") == Some(&Value::from("bin"))
            && message.pointer("/profile/test") == Some(&Value::from(false))
    };
    let program = messages.into_iter().find(is_program)?;
    program.get("executable")?.as_str().map(str::to_owned)
}

fn selects_package(argument: &str) -> bool {
    argument.starts_with("-p") || argument.starts_with("--package")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_told_from_its_tests_and_from_others() {
        let message = |name, kind, test, path| {
            let target = serde_json::json!({"name": name, "kind": [kind]});
            let profile = serde_json::json!({"test": test});
            serde_json::json!({"reason": "compiler-artifact", "target": target,
                "profile": profile, "executable": path})
            .to_string()
        };
        let lines = [
            message("xtask", "bin", false, "target/debug/xtask"),
            message("fencepost", "bin", true, "target/debug/deps/fencepost-1"),
            message("fencepost", "test", false, "target/debug/deps/fencepost-2"),
            "not a message".to_owned(),
            message("fencepost", "bin", false, "target/debug/fencepost"),
        ];
        let found = find_program(&lines.join("\n"));
        assert_eq!(found.as_deref(), Some("target/debug/fencepost"));
        assert_eq!(find_program(&lines[..4].join("\n")), None);
    }

    #[test]
    fn a_package_is_selected_in_every_spelling() {
        for argument in [
            "-p",
            "-pfencepost-core",
            "--package",
            "--package=fencepost-core",
        ] {
            assert!(selects_package(argument), "{argument}");
        }
        assert!(!selects_package("stale_claim_cannot_complete"));
    }
}
