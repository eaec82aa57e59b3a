//! The Markdown of the repository: its links, the table of contents, and the length of its pages.

use pulldown_cmark::{Event, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The longest page, in lines: a signpost, and what a contributor reads before a change.
const MAX_LINES: [(&str, usize); 2] = [("README.md", 150), ("docs/internals/decisions.md", 300)];

/// What a page links to, and the anchors of its headings.
#[derive(Default)]
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

/// The anchor that GitHub and mdBook give a heading: letters, digits, `-` and `_` in lower case, `-` for
/// spaces. Of several equal ones the second has `-1`.
fn anchor(heading: &str, taken: &BTreeSet<String>) -> String {
    let name: String = heading
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            _ => (c.is_alphanumeric() || c == '-' || c == '_').then_some(c),
        })
        .collect();
    (0..)
        .map(|n| {
            if n == 0 {
                name.clone()
            } else {
                format!("{name}-{n}")
            }
        })
        .find(|name| !taken.contains(name))
        .unwrap()
}

fn read(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    let options = pulldown_cmark::Options::ENABLE_TABLES;
    for event in Parser::new_ext(text, options) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let name = anchor(&heading.take().unwrap(), &page.anchors);
                page.anchors.insert(name);
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    page
}

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

/// All Markdown files below `folder`, but not in what is built or in folders that begin with a dot.
fn markdown(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if name != "target" && name != "corpus" && !name.starts_with('.') {
                markdown(&path, found);
            }
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// `a/b/../c` as `a/c`.
fn normalised(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            result.pop();
        } else {
            result.push(part);
        }
    }
    result
}

#[test]
fn every_link_leads_somewhere() {
    let root = root();
    let mut files = Vec::new();
    markdown(&root, &mut files);
    let pages: BTreeMap<PathBuf, Page> = files
        .into_iter()
        .map(|path| (path.clone(), read(&fs::read_to_string(&path).unwrap())))
        .collect();
    let mut broken = Vec::new();
    for (path, page) in &pages {
        for link in &page.links {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => normalised(&path.parent().unwrap().join(file)),
            };
            let found = target.exists()
                && (anchor.is_empty()
                    || pages
                        .get(&target)
                        .is_some_and(|page| page.anchors.contains(anchor)));
            if !found {
                broken.push(format!(
                    "{}: {link}",
                    path.strip_prefix(&root).unwrap().display()
                ));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_table_of_contents_has_every_page() {
    let docs = root().join("docs");
    let mut pages = Vec::new();
    markdown(&docs, &mut pages);
    let summary = docs.join("SUMMARY.md");
    let listed: BTreeSet<PathBuf> = read(&fs::read_to_string(&summary).unwrap())
        .links
        .iter()
        .map(|link| docs.join(link))
        .collect();
    let missing: Vec<&PathBuf> = pages
        .iter()
        .filter(|page| **page != summary && !listed.contains(*page))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn pages_are_short() {
    for (page, most) in MAX_LINES {
        let lines = fs::read_to_string(root().join(page))
            .unwrap()
            .lines()
            .count();
        assert!(lines <= most, "{page}: {lines} lines, at most {most}");
    }
}

#[test]
fn anchors_are_those_of_github() {
    let page = read("# What `it` costs, in us\n\n## A\n\n## A\n\n[x](y.md#z) ![p](q.png)\n");
    assert!(page.anchors.contains("what-it-costs-in-us"));
    assert!(page.anchors.contains("a") && page.anchors.contains("a-1"));
    assert_eq!(page.links, ["y.md#z", "q.png"]);
}
