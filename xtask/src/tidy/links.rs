//! Links in Markdown: a file, folder or heading that is named must exist.
//!
//! What is on the network is not visited, and code is not read.

use std::borrow::Cow;

use super::{Finding, Tree, extension, folder, numbered};

pub(super) fn findings(tree: &Tree, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, prose) in prose(text) {
        for target in targets(&prose) {
            if let Some(text) = leads_nowhere(tree, path, target) {
                findings.push(Finding::new(path, line, text));
            }
        }
    }
    findings
}

/// The lines outside of fenced blocks, without their inline code.
fn prose(text: &str) -> impl Iterator<Item = (usize, Cow<'_, str>)> {
    let mut fenced = false;
    numbered(text).filter_map(move |(line, text)| {
        if text.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        // Every second part is between two backticks.
        let outside = || text.split('`').step_by(2).collect::<Vec<_>>().join("");
        let prose = if text.contains('`') {
            Cow::Owned(outside())
        } else {
            Cow::Borrowed(text)
        };
        (!fenced).then_some((line, prose))
    })
}

/// The targets of `[text](target "title")` and of `[name]: target`.
fn targets(prose: &str) -> Vec<&str> {
    let inline = prose.split("](").skip(1);
    let inline = inline.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let named = prose
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]:"));
    inline
        .chain(named.map(|(_, target)| target))
        .filter_map(|target| target.split_whitespace().next())
        .map(|target| target.trim_matches(['<', '>']))
        .collect()
}

fn leads_nowhere(tree: &Tree, path: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let Some(file) = resolve(path, file) else {
        return Some(format!("the link `{target}` leads out of the checkout"));
    };
    if !tree.has(&file) {
        return Some(format!("the link `{target}` leads nowhere"));
    }
    if heading.is_empty() || extension(&file) != "md" {
        return None;
    }
    let text = tree.0.get(&file)?;
    let known = prose_headings(text).any(|known| known == heading);
    (!known).then(|| format!("the link `{target}` names a heading that {file} does not have"))
}

/// A link's path from the root; `None` when it climbs out of it.
fn resolve(path: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(path.to_owned());
    }
    let from = if link.starts_with('/') {
        ""
    } else {
        folder(path)
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in from.split('/').chain(link.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The headings as anchors: lower case, blanks as dashes, the rest dropped.
fn prose_headings(text: &str) -> impl Iterator<Item = String> {
    let mut fenced = false;
    let headings = text.lines().filter_map(move |line| {
        fenced ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        (!fenced && heading.len() < line.len()).then_some(heading.trim())
    });
    headings.map(|heading| {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let lower = heading.to_lowercase();
        let kept = lower.chars().filter(kept);
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use crate::tidy::said;

    /// A page at docs/index.md between a README and a record.
    fn page(text: &str) -> Vec<String> {
        said(&[
            (
                "README.md",
                "# Fencepost\n\n## Run it, now `up`\n\n```sh\n# no heading\n```\n",
            ),
            ("docs/adr/0001-why.md", ""),
            ("docs/index.md", text),
        ])
    }

    #[test]
    fn a_link_to_nothing_is_found_with_its_line() {
        let found = page("# Index\n\n[a](adr/0001-why.md) and [b](adr/0002.md \"title\")\n");
        assert_eq!(
            found,
            ["docs/index.md:3: the link `adr/0002.md` leads nowhere"]
        );
        let found = page("[named]: ../LICENSE\n");
        assert_eq!(
            found,
            ["docs/index.md:1: the link `../LICENSE` leads nowhere"]
        );
        let found = page("[up](../../elsewhere.md)\n");
        assert_eq!(
            found,
            ["docs/index.md:1: the link `../../elsewhere.md` leads out of the checkout"]
        );
    }

    #[test]
    fn files_folders_the_root_and_the_network_are_somewhere() {
        let text = "[a](adr/) [b](../README.md) [c](/README.md) [d](<adr/0001-why.md>)\n\
                    [e](https://example.com/x.md) [f](mailto:a@example.com) ![g](./adr)\n";
        assert_eq!(page(text), Vec::<String>::new());
    }

    #[test]
    fn a_heading_must_exist_where_it_is_looked_for() {
        assert_eq!(
            page("[a](../README.md#run-it-now-up)\n"),
            Vec::<String>::new()
        );
        assert_eq!(page("# One way\n[a](#one-way)\n"), Vec::<String>::new());
        let found = page("[a](../README.md#no-heading)\n");
        assert_eq!(
            found,
            [
                "docs/index.md:1: the link `../README.md#no-heading` names a heading that README.md does not have"
            ]
        );
    }

    #[test]
    fn code_is_not_read_as_links() {
        let text = "`[a](nowhere.md)` is how to link\n```md\n[b](nowhere.md)\n```\n";
        assert_eq!(page(text), Vec::<String>::new());
    }
}
