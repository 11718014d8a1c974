//! `cargo xtask tidy`: rules of the house that no lint can see.
//!
//! Owns the reading of the checkout and the list of findings. The rules are
//! pure functions over the texts read: [`source`] looks at Rust files,
//! [`manifest`] at what may depend on what, [`links`] at Markdown. It keeps
//! "each external library has one home" and the directions between the
//! crates; what rustfmt, clippy and cargo-deny see is left to them.

mod links;
mod manifest;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Folders that hold no source: what Git, Cargo and a trial run leave behind.
const SKIPPED: [&str; 3] = [".git", "target", "fencepost-data"];

/// Words that say "not finished". Split, so that this file does not find itself.
const MARKERS: [&str; 4] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("HA", "CK"),
];

/// Where the markers are looked for: everything that a person writes here.
const WRITTEN: [&str; 8] = ["rs", "toml", "md", "sql", "sh", "yml", "yaml", "html"];

/// The files of a checkout by their path from its root, with `/` between the
/// parts; a file that no rule reads has an empty text.
#[derive(Debug, Default)]
struct Tree(BTreeMap<String, String>);

/// A rule broken at a place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// Counted from one; zero when the whole file is meant.
    line: usize,
    text: String,
}

/// Checks the checkout at `root` and prints what is not tidy.
///
/// # Errors
/// When a file cannot be read, or a rule is broken.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut tree = Tree::default();
    tree.read(root, "")?;
    let findings = tree.findings();
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} of the rules above are broken", findings.len());
    }
    println!("{} files are tidy", tree.0.len());
    Ok(())
}

impl Tree {
    /// Adds what is below `folder`, a path from `root` that is empty or ends with `/`.
    fn read(&mut self, root: &Path, folder: &str) -> Result<()> {
        let directory = root.join(folder);
        let entries = fs::read_dir(&directory)
            .with_context(|| format!("cannot list {}", directory.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{folder}{name}");
            if entry.file_type()?.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    self.read(root, &format!("{path}/"))?;
                }
                continue;
            }
            let text = if WRITTEN.contains(&extension(&path)) {
                fs::read_to_string(entry.path())
                    .with_context(|| format!("cannot read {path} as text"))?
            } else {
                String::new()
            };
            self.0.insert(path, text);
        }
        Ok(())
    }

    fn findings(&self) -> BTreeSet<Finding> {
        let mut findings = BTreeSet::new();
        for (path, text) in &self.0 {
            match extension(path) {
                "rs" => findings.extend(source::findings(self, path, text)),
                "md" => findings.extend(links::findings(self, path, text)),
                "toml" if name(path) == "Cargo.toml" => {
                    findings.extend(manifest::findings(path, text));
                }
                _ => {}
            }
            findings.extend(leftovers(path, text));
        }
        findings
    }

    /// Whether `path` is a file, or a folder with files below it.
    fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.0.contains_key(path)
            || self.0.keys().any(|p| p.starts_with(&folder))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.text),
            line => write!(f, "{}:{line}: {}", self.path, self.text),
        }
    }
}

impl Finding {
    fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            text: text.into(),
        }
    }
}

fn leftovers(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, words) in numbered(text) {
        let mut words = words.split(|c: char| !c.is_alphanumeric() && c != '_');
        if let Some(marker) = words.find(|word| MARKERS.contains(word)) {
            let text = format!("{marker} is left over: finish it, or say why it is as it is");
            findings.push(Finding::new(path, line, text));
        }
    }
    findings
}

/// The lines of a text with their numbers.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

/// The last part of a path.
fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The path without its last part, empty at the root.
fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// What follows the last dot of the name, empty when there is none.
fn extension(path: &str) -> &str {
    name(path).rsplit_once('.').map_or("", |(_, end)| end)
}

/// What the rules say of a tree of `(path, text)`, a line a finding.
#[cfg(test)]
fn said(files: &[(&str, &str)]) -> Vec<String> {
    let own = |&(path, text): &(&str, &str)| (path.to_owned(), text.to_owned());
    let tree = Tree(files.iter().map(own).collect());
    tree.findings().iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leftover_marker_is_found_as_a_word_in_any_written_file() {
        for marker in MARKERS {
            let line = format!("-- {marker}: later\n");
            let found = said(&[("migrations/0001.sql", &line)]);
            let wanted = format!("migrations/0001.sql:1: {marker} is left over");
            assert!(
                found.len() == 1 && found[0].starts_with(&wanted),
                "{found:?}"
            );
        }
        let inside = format!("mktemp fencepost.{0}{0}\n", MARKERS[2]);
        assert!(said(&[("run.sh", &inside)]).is_empty());
    }

    #[test]
    fn a_folder_is_known_by_the_files_below_it() {
        let tree = Tree(BTreeMap::from([(
            "docs/adr/0001.md".to_owned(),
            String::new(),
        )]));
        assert!(tree.has("docs/adr") && tree.has("docs") && tree.has(""));
        assert!(!tree.has("docs/ad") && !tree.has("doc"));
    }
}
