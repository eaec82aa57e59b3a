//! Reads the source of a crate and says which of its files import which.
//!
//! A file is a module. Its imports are the paths in its code that lead into another file of
//! the crate: in `use` declarations, in expressions, types and the bodies of macros. A path
//! that a `use` re-exports counts as an import of the file that defines the item. Code under
//! `#[cfg(test)]` does not count, as it does not ship.

#![allow(
    clippy::missing_panics_doc,
    reason = "for tests: a panic is the report"
)]

mod attributes;
mod public;

pub use public::{public_names, read_public_names};

use attributes::{attributes, is_test};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::{Item, UseTree};

/// The Rust examples of README.md and the guides, which `cargo test` compiles and runs.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;

    #[doc = include_str!("../../../docs/guide/library.md")]
    struct Library;

    #[doc = include_str!("../../../docs/guide/event-loop.md")]
    struct EventLoop;

    #[doc = include_str!("../../../docs/guide/quic.md")]
    struct Quic;

    #[doc = include_str!("../../../docs/guide/gpu.md")]
    struct Gpu;
}

/// A module's path in its crate: empty for the root.
type Module = Vec<String>;

/// Who imports whom in one crate, by the files' paths below its `src` folder.
#[derive(Debug, Default)]
pub struct Imports {
    /// The files that each file imports.
    pub of: BTreeMap<String, BTreeSet<String>>,
    /// Every word in each file's code: identifiers, not comments or strings.
    pub words: BTreeMap<String, BTreeSet<String>>,
    /// Every string in each file's code.
    pub strings: BTreeMap<String, BTreeSet<String>>,
}

/// One file of a crate.
struct Source {
    /// Below `src`.
    path: String,
    /// Names that it defines or that a `use` brings in, with the path behind each.
    names: BTreeMap<String, Vec<String>>,
    /// Paths, each with the module that it is written in.
    paths: Vec<Vec<String>>,
    /// The macros that it defines, and those that it calls.
    macros: BTreeSet<String>,
    calls: BTreeSet<String>,
    words: BTreeSet<String>,
    strings: BTreeSet<String>,
}

impl Imports {
    /// Those of the crate whose root is `src/lib.rs` or `src/main.rs` below `folder`.
    #[must_use]
    pub fn of_crate(folder: &Path) -> Self {
        let src = folder.join("src");
        let root = ["lib.rs", "main.rs"]
            .into_iter()
            .find(|name| src.join(name).exists())
            .expect("lib.rs or main.rs");
        let read = |path: &str| std::fs::read_to_string(src.join(path)).ok();
        Self::read(root, &read)
    }

    /// Those of the crate whose root is `root`; `read` gives a file's text.
    #[must_use]
    pub fn read(root: &str, read: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut files = BTreeMap::new();
        add_file(&mut files, Vec::new(), root.into(), "", read);
        let mut imports = Self::default();
        for (module, source) in &files {
            let mut of = BTreeSet::new();
            for path in &source.paths {
                of.extend(target(&files, module, path, 0));
            }
            for call in &source.calls {
                let defines = |source: &&Source| source.macros.contains(call);
                of.extend(
                    files
                        .values()
                        .find(defines)
                        .map(|source| source.path.clone()),
                );
            }
            of.remove(&source.path);
            imports.of.insert(source.path.clone(), of);
            imports
                .words
                .insert(source.path.clone(), source.words.clone());
            imports
                .strings
                .insert(source.path.clone(), source.strings.clone());
        }
        imports
    }

    /// A circle of files, if there is one: each imports the next, the last the first.
    #[must_use]
    pub fn circle(&self) -> Option<Vec<String>> {
        let mut done = BTreeSet::new();
        for file in self.of.keys() {
            if let Some(circle) = self.circle_from(file, &mut Vec::new(), &mut done) {
                return Some(circle);
            }
        }
        None
    }

    fn circle_from(
        &self,
        file: &str,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(start) = way.iter().position(|one| one == file) {
            return Some(way[start..].to_vec());
        }
        if done.contains(file) {
            return None;
        }
        way.push(file.into());
        for next in self.of.get(file).into_iter().flatten() {
            let circle = self.circle_from(next, way, done);
            if circle.is_some() {
                return circle;
            }
        }
        way.pop();
        done.insert(file.into());
        None
    }

    /// Imports from a file that `from` accepts to one that `to` accepts, each as
    /// `a imports b`.
    #[must_use]
    pub fn between(&self, from: impl Fn(&str) -> bool, to: impl Fn(&str) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        for (file, imports) in self.of.iter().filter(|(file, _)| from(file)) {
            for other in imports.iter().filter(|other| to(other)) {
                found.push(format!("{file} imports {other}"));
            }
        }
        found
    }
}

/// Reads a file and the modules below it.
fn add_file(
    files: &mut BTreeMap<Module, Source>,
    module: Module,
    path: String,
    folder: &str,
    read: &dyn Fn(&str) -> Option<String>,
) {
    let text = read(&path).unwrap_or_else(|| panic!("no file {path}"));
    let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut source = Source {
        path,
        names: BTreeMap::new(),
        paths: Vec::new(),
        macros: BTreeSet::new(),
        calls: BTreeSet::new(),
        words: BTreeSet::new(),
        strings: BTreeSet::new(),
    };
    let mut children = Vec::new();
    add_items(&mut source, &mut children, parsed.items, &[]);
    files.insert(module.clone(), source);
    for below in children {
        let child = [module.clone(), below.clone()].concat();
        let name = below.join("/");
        let own = format!("{folder}{name}.rs");
        let path = match read(&own) {
            Some(_) => own,
            None => format!("{folder}{name}/mod.rs"),
        };
        add_file(files, child, path, &format!("{folder}{name}/"), read);
    }
}

/// Takes in items; `inside` are the modules within the file that they are in.
fn add_items(source: &mut Source, children: &mut Vec<Module>, items: Vec<Item>, inside: &[String]) {
    for item in items {
        if is_test(attributes(&item)) {
            continue;
        }
        match item {
            Item::Use(item) => {
                add_use(source, &item.tree, Vec::new(), inside);
                continue;
            }
            Item::Mod(item) => {
                let name = item.ident.to_string();
                match item.content {
                    None => children.push([inside, &[name]].concat()),
                    Some((_, items)) => {
                        let inside = [inside, &[name]].concat();
                        add_items(source, children, items, &inside);
                    }
                }
                continue;
            }
            Item::Macro(item) => {
                if let Some(name) = &item.ident {
                    source.macros.insert(name.to_string());
                }
                if let Some(called) = item.mac.path.get_ident() {
                    source.calls.insert(called.to_string());
                }
                add_tokens(source, item.mac.tokens, inside);
            }
            item => add_tokens(source, tokens(&item), inside),
        }
    }
}

fn tokens(item: &Item) -> TokenStream {
    quote::ToTokens::to_token_stream(item)
}

/// Takes in the paths of a `use`, and the name that each brings in.
fn add_use(source: &mut Source, tree: &UseTree, mut path: Vec<String>, inside: &[String]) {
    let add = |source: &mut Source, name: String, path: Vec<String>| {
        if inside.is_empty() {
            source.names.insert(name, path.clone());
        }
        source.words.extend(path.iter().cloned());
        source.paths.push(leave(path, inside));
    };
    match tree {
        UseTree::Path(tree) => {
            path.push(tree.ident.to_string());
            add_use(source, &tree.tree, path, inside);
        }
        UseTree::Name(tree) => {
            let name = tree.ident.to_string();
            if name != "self" {
                path.push(name);
            }
            let name = path.last().expect("a name").clone();
            add(source, name, path);
        }
        UseTree::Rename(tree) => {
            let name = tree.ident.to_string();
            if name != "self" {
                path.push(name);
            }
            add(source, tree.rename.to_string(), path);
        }
        UseTree::Glob(_) => add(source, "*".into(), path),
        UseTree::Group(tree) => {
            for tree in &tree.items {
                add_use(source, tree, path.clone(), inside);
            }
        }
    }
}

/// A path as it reads in the file's own module, for one written in modules inside it.
fn leave(path: Vec<String>, inside: &[String]) -> Vec<String> {
    let up = path
        .iter()
        .take_while(|segment| *segment == "super")
        .count();
    if up == 0 || up > inside.len() {
        return path[up.min(inside.len())..].to_vec();
    }
    let mut left = vec!["self".to_owned()];
    left.extend(path[up..].iter().cloned());
    left
}

/// Takes in the words, strings, macro calls and paths of code.
fn add_tokens(source: &mut Source, stream: TokenStream, inside: &[String]) {
    let mut path: Vec<String> = Vec::new();
    // How many colons came since the last word of the path.
    let mut colons = 0;
    let mut trees = stream.into_iter().peekable();
    let finish = |source: &mut Source, path: &mut Vec<String>| {
        if path.len() > 1 {
            source.paths.push(leave(core::mem::take(path), inside));
        }
        path.clear();
    };
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Ident(word) => {
                let word = word.to_string();
                source.words.insert(word.clone());
                if colons != 2 {
                    finish(source, &mut path);
                }
                let is_call =
                    matches!(trees.peek(), Some(TokenTree::Punct(p)) if p.as_char() == '!');
                if is_call {
                    source.calls.insert(word.clone());
                }
                path.push(word);
                colons = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => colons += 1,
            TokenTree::Group(group) => {
                // `a::{b, c}` in a macro's `use`.
                if colons == 2 && group.delimiter() == Delimiter::Brace {
                    for name in group.stream() {
                        if let TokenTree::Ident(name) = name {
                            let mut whole = path.clone();
                            whole.push(name.to_string());
                            source.paths.push(leave(whole, inside));
                        }
                    }
                }
                finish(source, &mut path);
                colons = 0;
                add_tokens(source, group.stream(), inside);
            }
            TokenTree::Literal(literal) => {
                finish(source, &mut path);
                colons = 0;
                let text = literal.to_string();
                if text.starts_with('"') {
                    source.strings.insert(text.trim_matches('"').to_owned());
                }
            }
            TokenTree::Punct(_) => {
                finish(source, &mut path);
                colons = 0;
            }
        }
    }
    finish(source, &mut path);
}

/// Follows `crate`, `self` and `super` at the beginning of a path that is written in module `at`. Returns what
/// comes after them.
fn follow_prefix<'p>(at: &mut Module, path: &'p [String]) -> &'p [String] {
    let mut rest = path;
    while let Some((first, others)) = rest.split_first() {
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => _ = at.pop(),
            _ => break,
        }
        rest = others;
    }
    rest
}

/// The file that a path in `module` leads to, if it leads into the crate.
fn target(
    files: &BTreeMap<Module, Source>,
    module: &Module,
    path: &[String],
    depth: usize,
) -> Option<String> {
    // A `use` that leads back to itself is no import.
    if depth > 16 {
        return None;
    }
    let mut at = module.clone();
    let mut rest = follow_prefix(&mut at, path);
    let mut absolute = rest.len() < path.len();
    while let Some((first, others)) = rest.split_first() {
        let mut child = at.clone();
        child.push(first.clone());
        // A module inside a file counts if files lie below it.
        if !files.keys().any(|module| module.starts_with(&child)) {
            break;
        }
        at = child;
        absolute = true;
        rest = others;
    }
    let mut owner = at.clone();
    while !files.contains_key(&owner) {
        owner.pop();
    }
    let source = &files[&owner];
    if let Some((name, others)) = rest.split_first()
        && (absolute || at == *module)
        && let Some(behind) = source.names.get(name)
    {
        // What a `use` brings in here lies behind that.
        let whole = [behind.as_slice(), others].concat();
        if whole != path || at != *module {
            return target(files, &at, &whole, depth + 1).or_else(|| {
                // From another crate: it is this file's if somebody else asks for it.
                (absolute && at != *module).then(|| source.path.clone())
            });
        }
    }
    absolute.then(|| source.path.clone())
}
