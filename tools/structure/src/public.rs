//! Lists the public names of a crate: the items that other crates can name, each once, whichever
//! paths lead to it. Modules are paths, not names. Excludes methods, fields, variants, associated
//! constants, `#[cfg(test)]` code, and everything behind the feature `internals`.

use crate::attributes::{attributes, is_test};
use crate::follow_prefix;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::{Attribute, Item, UseTree, Visibility};

/// Where an item is defined: the modules from the root, then its name.
type Place = Vec<String>;

/// The modules of a crate, by path.
type Modules = BTreeMap<Place, BTreeMap<String, Name>>;

/// A name within a module.
struct Name {
    is_public: bool,
    kind: Kind,
}

enum Kind {
    Module,
    Item,
    /// A `use` of this path.
    Use(Vec<String>),
}

/// The public names of the crate in `folder`, each as the path of its definition.
#[must_use]
pub fn public_names(folder: &Path) -> BTreeSet<String> {
    let src = folder.join("src");
    read_public_names(&|path| std::fs::read_to_string(src.join(path)).ok())
}

/// Like [`public_names`], for the crate with root `lib.rs`. `read` returns the text of a file.
#[must_use]
pub fn read_public_names(read: &dyn Fn(&str) -> Option<String>) -> BTreeSet<String> {
    let mut modules = Modules::new();
    add_file(&mut modules, Vec::new(), "lib.rs", "", read);
    let mut names = BTreeSet::new();
    add_public(&modules, &Vec::new(), &mut BTreeSet::new(), &mut names);
    names
}

/// Adds the names that a public module exports.
fn add_public(
    modules: &Modules,
    module: &Place,
    seen: &mut BTreeSet<Place>,
    names: &mut BTreeSet<String>,
) {
    if !seen.insert(module.clone()) {
        return;
    }
    for (word, name) in &modules[module] {
        if !name.is_public {
            continue;
        }
        let place = resolve(modules, module, std::slice::from_ref(word));
        if modules.contains_key(&place) {
            add_public(modules, &place, seen, names);
        } else {
            names.insert(place.join("::"));
        }
    }
}

/// The definition of `path`, seen from `module`. A path into another crate is its own definition.
fn resolve(modules: &Modules, module: &Place, path: &[String]) -> Place {
    let mut at = module.clone();
    let rest = follow_prefix(&mut at, path);
    let Some((first, others)) = rest.split_first() else {
        return at;
    };
    match modules.get(&at).and_then(|names| names.get(first)) {
        Some(Name {
            kind: Kind::Use(target),
            ..
        }) if target.first() != Some(first) => {
            let whole = [target.as_slice(), others].concat();
            resolve(modules, &at, &whole)
        }
        Some(Name {
            kind: Kind::Module, ..
        }) => {
            at.push(first.clone());
            resolve(modules, &at, others)
        }
        Some(_) => {
            at.push(first.clone());
            at
        }
        None => path.to_vec(),
    }
}

/// Parses a file and the modules below it.
fn add_file(
    modules: &mut Modules,
    module: Place,
    path: &str,
    folder: &str,
    read: &dyn Fn(&str) -> Option<String>,
) {
    let text = read(path).unwrap_or_else(|| panic!("no file {path}"));
    let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    add_items(modules, module, folder, parsed.items, read);
}

fn add_items(
    modules: &mut Modules,
    module: Place,
    folder: &str,
    items: Vec<Item>,
    read: &dyn Fn(&str) -> Option<String>,
) {
    let mut names = BTreeMap::new();
    for item in items {
        if is_left_out(attributes(&item)) {
            continue;
        }
        let (vis, word, kind) = match item {
            Item::Use(item) => {
                let is_public = is_public(&item.vis);
                add_use(&mut names, &item.tree, Vec::new(), is_public);
                continue;
            }
            Item::Mod(item) => {
                let word = item.ident.to_string();
                let child = [module.as_slice(), std::slice::from_ref(&word)].concat();
                let below = format!("{folder}{word}/");
                match item.content {
                    Some((_, items)) => add_items(modules, child, &below, items, read),
                    None => {
                        let own = format!("{folder}{word}.rs");
                        let path = match read(&own) {
                            Some(_) => own,
                            None => format!("{below}mod.rs"),
                        };
                        add_file(modules, child, &path, &below, read);
                    }
                }
                (item.vis, word, Kind::Module)
            }
            Item::Const(item) => (item.vis, item.ident.to_string(), Kind::Item),
            Item::Enum(item) => (item.vis, item.ident.to_string(), Kind::Item),
            Item::Fn(item) => (item.vis, item.sig.ident.to_string(), Kind::Item),
            Item::Static(item) => (item.vis, item.ident.to_string(), Kind::Item),
            Item::Struct(item) => (item.vis, item.ident.to_string(), Kind::Item),
            Item::Trait(item) => (item.vis, item.ident.to_string(), Kind::Item),
            Item::Type(item) => (item.vis, item.ident.to_string(), Kind::Item),
            Item::Union(item) => (item.vis, item.ident.to_string(), Kind::Item),
            _ => continue,
        };
        let is_public = is_public(&vis);
        names.insert(word, Name { is_public, kind });
    }
    modules.insert(module, names);
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Whether an item is excluded.
fn is_left_out(found: &[Attribute]) -> bool {
    let is_internal = |attribute: &Attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let tokens: String = list.tokens.to_string().split_whitespace().collect();
            tokens == "feature=\"internals\""
        }
        _ => false,
    };
    is_test(found) || found.iter().any(is_internal)
}

/// Adds the names that a `use` imports.
fn add_use(names: &mut BTreeMap<String, Name>, tree: &UseTree, path: Vec<String>, is_public: bool) {
    let with = |word: &syn::Ident| {
        let word = word.to_string();
        let mut whole = path.clone();
        if word != "self" {
            whole.push(word);
        }
        whole
    };
    let mut add = |word: String, path| {
        let kind = Kind::Use(path);
        names.insert(word, Name { is_public, kind });
    };
    match tree {
        UseTree::Path(tree) => add_use(names, &tree.tree, with(&tree.ident), is_public),
        UseTree::Name(tree) => {
            let whole = with(&tree.ident);
            add(whole.last().expect("a name").clone(), whole);
        }
        UseTree::Rename(tree) => add(tree.rename.to_string(), with(&tree.ident)),
        UseTree::Glob(_) => assert!(!is_public, "`pub use {}::*` hides names", path.join("::")),
        UseTree::Group(group) => {
            for tree in &group.items {
                add_use(names, tree, path.clone(), is_public);
            }
        }
    }
}
