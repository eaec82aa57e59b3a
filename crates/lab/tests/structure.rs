//! The structure of this crate: which files import which. No file imports itself through
//! others, no experiment knows another, and nothing that shows reports names an experiment.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The source files by module path: `["show", "text"]` for `show/text.rs`. The crate's root is
/// left out: it only declares.
fn sources() -> BTreeMap<Vec<String>, String> {
    fn read(folder: &Path, module: &[String], found: &mut BTreeMap<Vec<String>, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let below = [module, std::slice::from_ref(&name)].concat();
            match path.is_dir() {
                true => read(&path, &below, found),
                false if name == "mod" => {
                    found.insert(module.to_vec(), fs::read_to_string(&path).unwrap());
                }
                false => {
                    found.insert(below, fs::read_to_string(&path).unwrap());
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    read(&folder, &[], &mut found);
    found.remove(&vec!["lib".to_owned()]);
    found
}

/// The text without comments and without the module of tests, which is last in a file.
fn code(text: &str) -> String {
    let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = shipped.lines().map(str::trim_start);
    let lines = lines.filter(|line| !line.starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Every path that begins with `crate::` or `super::`, with its braces opened.
fn paths(code: &str) -> Vec<Vec<String>> {
    fn parse(rest: &mut &str, prefix: &[String], found: &mut Vec<Vec<String>>) {
        let mut path = prefix.to_vec();
        loop {
            *rest = rest.trim_start();
            if let Some(inside) = rest.strip_prefix('{') {
                *rest = inside;
                loop {
                    parse(rest, &path, found);
                    *rest = rest.trim_start();
                    match rest.strip_prefix(',') {
                        Some(more) => *rest = more,
                        None => break,
                    }
                    if rest.trim_start().starts_with('}') {
                        break;
                    }
                }
                *rest = rest.trim_start().strip_prefix('}').unwrap_or(rest);
                return;
            }
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
            path.push(word.to_owned());
            *rest = behind;
            match behind.strip_prefix("::") {
                Some(more) => *rest = more,
                None => break,
            }
        }
        found.push(path);
    }
    let mut found = Vec::new();
    for root in ["crate::", "super::"] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back();
            // Not the middle of a name, nor of `super::super::`.
            if !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                let mut rest = &code[at..];
                parse(&mut rest, &[], &mut found);
            }
        }
    }
    found
}

/// Which files each file imports: the longest part of a path that is a file.
fn imports() -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let sources = sources();
    let resolve = |from: &[String], path: &[String]| {
        let mut whole = match path[0].as_str() {
            "crate" => Vec::new(),
            _ => from[..from.len() - 1].to_vec(),
        };
        let supers = path[1..].iter().take_while(|part| *part == "super").count();
        whole.truncate(whole.len() - supers);
        whole.extend_from_slice(&path[1 + supers..]);
        (1..=whole.len())
            .rev()
            .map(|len| whole[..len].to_vec())
            .find(|file| sources.contains_key(file))
    };
    sources
        .iter()
        .map(|(file, text)| {
            let mut files: BTreeSet<Vec<String>> = paths(&code(text))
                .iter()
                .filter_map(|path| resolve(file, path))
                .filter(|other| other != file)
                .collect();
            // A parent that refers to what a child defines imports that child.
            for (child, _) in sources.iter().filter(|(child, _)| child.len() > file.len()) {
                let (place, name) = child.split_at(file.len());
                let name = name.join("::");
                let names = [format!("{name}::"), format!("use {name};")];
                if place == file && names.iter().any(|name| code(text).contains(name)) {
                    files.insert(child.clone());
                }
            }
            (file.clone(), files)
        })
        .collect()
}

#[test]
fn paths_are_read() {
    let code = "use crate::a::{b::{C, d}, E};\nuse super::f;\nlet x = crate::g::H::new();";
    let read: Vec<String> = paths(code).iter().map(|path| path.join("::")).collect();
    let expected = [
        "crate::a::b::C",
        "crate::a::b::d",
        "crate::a::E",
        "crate::g::H::new",
    ];
    assert_eq!(read[..4], expected);
    assert_eq!(read[4], "super::f");
}

#[test]
fn no_file_imports_itself_through_others() {
    let imports = imports();
    let files: usize = imports.values().map(BTreeSet::len).sum();
    assert!(files > 100, "only {files} imports were read");
    for start in imports.keys() {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&Vec<String>> = imports[start].iter().collect();
        while let Some(file) = next.pop() {
            assert!(file != start, "{} is in a circle", start.join("/"));
            if reached.insert(file) {
                next.extend(&imports[file]);
            }
        }
    }
}

#[test]
fn an_experiment_knows_no_other_and_no_higher_layer() {
    for (file, imports) in imports() {
        let experiment = file[0] == "experiments" && file.len() > 1;
        let below = [
            "rivals", "workload", "measure", "record", "report", "traffic",
        ];
        if !experiment && !below.contains(&file[0].as_str()) {
            continue;
        }
        for other in imports {
            let higher = ["experiments", "run", "show", "progress"];
            assert!(
                !higher.contains(&other[0].as_str()),
                "{} imports {}",
                file.join("/"),
                other.join("/")
            );
        }
    }
}

#[test]
fn what_shows_a_report_names_no_experiment() {
    let shown = sources().into_iter().filter(|(file, _)| file[0] == "show");
    let names = packetlane_lab::run::names();
    let mut read = 0;
    for (file, text) in shown {
        read += 1;
        for name in &names {
            assert!(!code(&text).contains(name), "{}: {name}", file.join("/"));
        }
    }
    assert!(read > 5, "only {read} files were read");
}
