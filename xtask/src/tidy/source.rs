//! What a Rust file may look like.

use super::{Finding, Tree, extension, folder, name, numbered};

/// Past this nobody reads a file whole. Aim for 400.
const FILE_LINES_MAX: usize = 600;

/// What a side-by-side diff and a long terminal still show without wrapping.
const LINE_CHARS_MAX: usize = 160;

/// Names under which anything can be put, and so anything is.
const EMPTY_NAMES: [&str; 8] = [
    "common", "helper", "helpers", "manager", "managers", "misc", "util", "utils",
];

/// What stands after a sleep that is no wait for luck.
const DELIBERATE: &str = "// deliberate:";

/// Texts that must not appear below a folder, and what to do instead. The
/// first part is split where this file would find itself.
const BANNED: [(&str, &str, &str); 10] = [
    (
        "",
        concat!("#[", "ignore"),
        "a skipped test proves nothing: scale it down, literal times are for `--full`",
    ),
    (
        "",
        concat!("#[", "allow("),
        "use `#[expect(lint, reason = \"…\")]`, which says when it is no longer needed",
    ),
    (
        "",
        concat!("#!", "[allow("),
        "use `#![expect(lint, reason = \"…\")]`, which says when it is no longer needed",
    ),
    (
        "crates/core/src/",
        "async fn",
        "the domain is pure: decide here, act in the thin loops of the roles",
    ),
    (
        "crates/core/src/",
        "std::env",
        "the domain has no I/O: take the value as an argument",
    ),
    (
        "crates/core/src/",
        "std::fs",
        "the domain has no I/O: take the content as an argument",
    ),
    ("crates/core/src/", "std::net", "the domain has no I/O"),
    (
        "crates/core/src/",
        "Instant::now",
        "the domain reads no clock: take the time as an argument",
    ),
    (
        "crates/core/src/",
        "HashMap",
        "the domain gives the same answer every time: use a `BTreeMap`",
    ),
    (
        "crates/core/src/",
        "HashSet",
        "the domain gives the same answer every time: use a `BTreeSet`",
    ),
];

pub(super) fn findings(tree: &Tree, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = shape(tree, path, text);
    let mut test = is_test_file(path);
    let mut gated = false;
    for (line, code) in numbered(text) {
        let mut found = |text: String| findings.push(Finding::new(path, line, text));
        // By custom a file ends with its tests, so they last until its end.
        test |= gated && code.trim_end().ends_with('{') && module(code).is_some();
        gated = code.trim() == "#[cfg(test)]";
        let chars = code.chars().count();
        if chars > LINE_CHARS_MAX {
            found(format!(
                "{chars} characters in a line; {LINE_CHARS_MAX} is the limit"
            ));
        }
        if let Some(name) = module(code).filter(|name| EMPTY_NAMES.contains(name)) {
            found(format!(
                "a module called `{name}` says nothing: name what it owns"
            ));
        }
        if test && calls_sleep(code) && !code.contains(DELIBERATE) {
            found(format!(
                "a test sleeps for luck: wait with a limit, or end the line with `{DELIBERATE} …`"
            ));
        }
        for (below, banned, instead) in BANNED {
            if path.starts_with(below) && code.contains(banned) {
                found(format!("`{banned}` is banned here: {instead}"));
            }
        }
    }
    findings
}

/// The rules of a file as a whole.
fn shape(tree: &Tree, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |text: String| findings.push(Finding::new(path, 0, text));
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        found(format!(
            "{lines} lines; {FILE_LINES_MAX} is the limit, 400 the aim: split it"
        ));
    }
    let folder = folder(path);
    let module = match name(path) {
        "mod.rs" => name(folder),
        file => file.trim_end_matches(".rs"),
    };
    if EMPTY_NAMES.contains(&module) {
        found(format!(
            "a file called `{module}` says nothing: name what it owns"
        ));
    }
    if name(path) == "mod.rs" {
        let below = format!("{folder}/");
        let is_other = |other: &&String| {
            other.starts_with(&below) && *other != path && extension(other) == "rs"
        };
        if tree.0.keys().find(is_other).is_none() {
            found(format!("a folder for one file: make it {folder}.rs"));
        }
    }
    findings
}

/// Whether all of a file is compiled for tests only.
fn is_test_file(path: &str) -> bool {
    path.starts_with("tests/")
        || path.contains("/tests/")
        || name(path) == "tests.rs"
        || path.ends_with("_tests.rs")
}

/// The name of the module that a line declares or opens.
fn module(code: &str) -> Option<&str> {
    let code = code.trim();
    let code = code.strip_prefix("pub").map_or(code, |code| {
        let code = code.trim_start();
        let restricted = code.strip_prefix('(').and_then(|code| code.split_once(')'));
        restricted.map_or(code, |(_, code)| code.trim_start())
    });
    let name = code.strip_prefix("mod ")?;
    Some(name.trim_end_matches(['{', '}', ';', ' ']))
}

/// Whether a line calls a function called `sleep`.
fn calls_sleep(code: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices("sleep(").any(|(at, _)| {
        let before = code.get(..at).unwrap_or_default();
        !before.ends_with(is_name) && !before.trim_start().starts_with("//")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::said;

    const SLEEP: &str = concat!("    tokio::time::sl", "eep(SECOND).await;");

    #[test]
    fn a_file_over_the_limit_is_found_and_one_at_the_limit_is_not() {
        let at = "\n".repeat(FILE_LINES_MAX);
        assert!(said(&[("api/src/routes.rs", &at)]).is_empty());
        let over = "\n".repeat(FILE_LINES_MAX + 1);
        let found = said(&[("api/src/routes.rs", &over)]);
        assert_eq!(
            found,
            ["api/src/routes.rs: 601 lines; 600 is the limit, 400 the aim: split it"]
        );
    }

    #[test]
    fn a_long_line_is_measured_in_characters() {
        let at = format!("// {}\n", "ü".repeat(LINE_CHARS_MAX - 3));
        assert!(said(&[("cli/src/main.rs", &at)]).is_empty());
        let found = said(&[("cli/src/main.rs", &format!("\n// {at}"))]);
        assert_eq!(
            found,
            ["cli/src/main.rs:2: 163 characters in a line; 160 is the limit"]
        );
    }

    #[test]
    fn a_folder_for_one_file_is_found() {
        let alone = said(&[("api/src/routes/mod.rs", ""), ("api/src/main.rs", "")]);
        assert_eq!(
            alone,
            ["api/src/routes/mod.rs: a folder for one file: make it api/src/routes.rs"]
        );
        assert!(
            said(&[
                ("api/src/routes/mod.rs", ""),
                ("api/src/routes/jobs.rs", "")
            ])
            .is_empty()
        );
    }

    #[test]
    fn a_name_that_says_nothing_is_found_as_file_folder_and_module() {
        for path in ["api/src/utils.rs", "api/src/utils/mod.rs"] {
            let found = said(&[(path, ""), ("api/src/utils/time.rs", "")]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains("a file called `utils` says nothing"));
        }
        for line in [
            "mod helpers {",
            "pub(crate) mod helpers;",
            "pub mod helpers {}",
        ] {
            let found = said(&[("api/src/lib.rs", line)]);
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert!(found[0].contains("a module called `helpers` says nothing"));
        }
        assert!(said(&[("api/src/lib.rs", "mod utility_rates;\n// mod utils\n")]).is_empty());
    }

    #[test]
    fn a_sleep_is_found_in_tests_only_and_not_when_it_is_deliberate() {
        let product = format!("async fn poll() {{\n{SLEEP}\n}}\n");
        let unit = format!("{product}\n#[cfg(test)]\nmod tests {{\n{SLEEP}\n}}\n");
        assert!(said(&[("relay/src/reaper.rs", &product)]).is_empty());
        let found = said(&[("relay/src/reaper.rs", &unit)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("relay/src/reaper.rs:7: a test sleeps for luck"));
        for path in [
            "relay/tests/relay.rs",
            "tests/src/lib.rs",
            "relay/src/reaper_tests.rs",
        ] {
            assert_eq!(said(&[(path, &product)]).len(), 1, "{path}");
            let deliberate = format!("{SLEEP} {DELIBERATE} the length of the lease\n");
            assert!(said(&[(path, &deliberate)]).is_empty(), "{path}");
        }
        let declared = format!("#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;\n{product}");
        assert!(said(&[("relay/src/reaper.rs", &declared)]).is_empty());
    }

    #[test]
    fn a_banned_text_is_found_where_it_is_banned() {
        for (below, banned, _) in BANNED {
            let path = format!("{below}lifecycle.rs");
            let found = said(&[(&path, &format!("{banned}\n"))]);
            assert_eq!(found.len(), 1, "{banned}: {found:?}");
            assert!(found[0].contains(&format!("`{banned}` is banned here")));
        }
        assert!(said(&[("crates/store/src/wake.rs", "use std::fs;\n")]).is_empty());
    }
}
