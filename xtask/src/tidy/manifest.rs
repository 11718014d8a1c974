//! What a crate may depend on.

use toml::{Table, Value};

use super::{Finding, folder};

/// The only folder of the product that may name a library. cargo-deny checks the
/// same on the resolved graph; this says it before anything is resolved.
const HOMES: [(&str, &str); 4] = [
    ("axum", "api"),
    ("backoff", "crates/broker"),
    ("lapin", "crates/broker"),
    ("sqlx", "crates/store"),
];

/// The crates of this workspace that a folder may name for its product; a
/// folder that is not listed may name any.
const KNOWN: [(&str, &[&str]); 8] = [
    ("crates/core", &[]),
    ("crates/broker", &["fencepost-core"]),
    ("crates/service", &["fencepost-core"]),
    ("crates/store", &["fencepost-core"]),
    ("crates/testkit", &[]),
    ("api", ROLE),
    ("relay", ROLE),
    ("worker", ROLE),
];

/// The roles do not know each other: only the binary puts them together.
const ROLE: &[&str] = &[
    "fencepost-broker",
    "fencepost-core",
    "fencepost-service",
    "fencepost-store",
];

/// Programs of other people, as examples of them.
const EXAMPLES: &str = "examples";

/// Where the test kit is more than a dev-dependency.
const TEST_FOLDERS: [&str; 3] = ["bench", "tests", "xtask"];

pub(super) fn findings(path: &str, text: &str) -> Vec<Finding> {
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![Finding::new(path, 0, format!("not TOML: {error}"))],
    };
    if !manifest.contains_key("package") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut found = |text: String| findings.push(Finding::new(path, 0, text));
    let lints = manifest.get("lints").and_then(|of| of.get("workspace"));
    if lints.and_then(Value::as_bool) != Some(true) {
        found("does not inherit the lints: add `[lints] workspace = true`".to_owned());
    }
    let folder = folder(path);
    for (library, use_in) in dependencies(&manifest) {
        if let Some((_, home)) = HOMES.iter().find(|(name, _)| *name == library)
            && *home != folder
            && folder != EXAMPLES
        {
            found(format!(
                "`{library}` has one home, {home}: call that instead"
            ));
        }
        if use_in == UseIn::Tests || !library.starts_with("fencepost") {
            continue;
        }
        if library == "fencepost-testkit" && !TEST_FOLDERS.contains(&folder) {
            found(format!("`{library}` is a dev-dependency only"));
        } else if let Some((_, known)) = KNOWN.iter().find(|(name, _)| *name == folder)
            && !known.contains(&library.as_str())
        {
            found(format!("{folder} must not know `{library}`"));
        }
    }
    findings
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UseIn {
    Product,
    Tests,
}

/// Every package that a manifest names, whatever it is called there.
fn dependencies(manifest: &Table) -> Vec<(String, UseIn)> {
    let platforms = manifest.get("target").and_then(Value::as_table);
    let platforms = platforms.into_iter().flat_map(Table::values);
    let tables = platforms.filter_map(Value::as_table).chain([manifest]);
    let mut found = Vec::new();
    for table in tables {
        for (section, use_in) in [
            ("dependencies", UseIn::Product),
            ("build-dependencies", UseIn::Product),
            ("dev-dependencies", UseIn::Tests),
        ] {
            let section = table.get(section).and_then(Value::as_table);
            for (name, how) in section.into_iter().flatten() {
                let package = how.get("package").and_then(Value::as_str);
                found.push((package.unwrap_or(name).to_owned(), use_in));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::tidy::said;

    /// A manifest that keeps the rules, before `more`.
    fn manifest(more: &str) -> String {
        format!("[package]\nname = \"x\"\n[lints]\nworkspace = true\n{more}")
    }

    #[test]
    fn a_crate_with_lints_of_its_own_is_found() {
        for lints in [
            "",
            "[lints.rust]\nunsafe_code = \"forbid\"\n",
            "[lints]\nworkspace = false\n",
        ] {
            let found = said(&[(
                "api/Cargo.toml",
                &format!("[package]\nname = \"x\"\n{lints}"),
            )]);
            assert_eq!(
                found,
                ["api/Cargo.toml: does not inherit the lints: add `[lints] workspace = true`"],
                "{lints}"
            );
        }
        assert!(said(&[("api/Cargo.toml", &manifest(""))]).is_empty());
        assert!(said(&[("Cargo.toml", "[workspace]\n")]).is_empty());
    }

    #[test]
    fn a_library_outside_its_home_is_found_in_every_section_and_under_every_name() {
        for more in [
            "[dependencies]\nlapin.workspace = true\n",
            "[dev-dependencies]\nlapin = \"4\"\n",
            "[build-dependencies]\nrabbit = { package = \"lapin\", version = \"4\" }\n",
            "[target.'cfg(unix)'.dependencies.lapin]\nversion = \"4\"\n",
        ] {
            let found = said(&[("relay/Cargo.toml", &manifest(more))]);
            assert_eq!(
                found,
                ["relay/Cargo.toml: `lapin` has one home, crates/broker: call that instead"],
                "{more}"
            );
            assert!(said(&[("crates/broker/Cargo.toml", &manifest(more))]).is_empty());
        }
    }

    #[test]
    fn a_role_must_not_know_another_and_the_core_knows_nobody() {
        let worker = manifest("[dependencies]\nfencepost-worker.workspace = true\n");
        let found = said(&[("api/Cargo.toml", &worker)]);
        assert_eq!(
            found,
            ["api/Cargo.toml: api must not know `fencepost-worker`"]
        );
        assert!(said(&[("cli/Cargo.toml", &worker)]).is_empty());
        let store = manifest("[dependencies]\nfencepost-store.workspace = true\n");
        assert_eq!(said(&[("crates/core/Cargo.toml", &store)]).len(), 1);
        assert!(said(&[("api/Cargo.toml", &store)]).is_empty());
        let in_tests = manifest("[dev-dependencies]\nfencepost-worker.workspace = true\n");
        assert!(said(&[("api/Cargo.toml", &in_tests)]).is_empty());
    }

    #[test]
    fn the_test_kit_is_for_tests() {
        let product = manifest("[dependencies]\nfencepost-testkit.workspace = true\n");
        let found = said(&[("cli/Cargo.toml", &product)]);
        assert_eq!(
            found,
            ["cli/Cargo.toml: `fencepost-testkit` is a dev-dependency only"]
        );
        assert!(said(&[("xtask/Cargo.toml", &product)]).is_empty());
    }

    #[test]
    fn a_manifest_that_is_not_toml_is_a_finding() {
        let found = said(&[("api/Cargo.toml", "[package\n")]);
        assert!(
            found.len() == 1 && found[0].starts_with("api/Cargo.toml: not TOML"),
            "{found:?}"
        );
    }
}
