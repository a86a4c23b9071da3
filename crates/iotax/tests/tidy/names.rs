//! Names: each public type has a unique one, and none is a word that says nothing.

use std::collections::BTreeMap;

use crate::Source;

/// Finds public types of the same name in several files.
pub(crate) fn shared_names(sources: &[Source]) -> Vec<String> {
    let mut declared: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.contains("/src/")) {
        for name in public_types(&source.words) {
            declared.entry(name).or_default().push(&source.path);
        }
    }
    let shared = declared.iter().filter(|(_, paths)| paths.len() > 1);
    shared.map(|(name, paths)| format!("{}: a public type of one name: {name}", paths.join(", "))).collect()
}

/// Returns the names after `pub struct`, `pub enum` and so on at the top level, and those declared by `words!`.
fn public_types(words: &[String]) -> Vec<&str> {
    let (mut depth, mut found, mut of_words) = (0_usize, Vec::new(), false);
    for (index, word) in words.iter().enumerate() {
        let at = |ahead: usize| words.get(index + ahead).map_or("", String::as_str);
        match word.as_str() {
            "pub" if depth == 0 && ["struct", "enum", "trait", "type"].contains(&at(1)) => found.push(at(2)),
            "words" if depth == 0 && at(1) == "!" => of_words = true,
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                of_words &= depth > 0;
            }
            name if of_words && depth == 1 && at(1) == "," && at(2) == "literal" && at(3) == "{" => {
                found.push(name);
            }
            _ => {}
        }
    }
    found
}

/// Names of types that say nothing about the type.
const RETIRED_TYPES: [&str; 14] = [
    "Told",
    "Way",
    "Ways",
    "WaySample",
    "Scene",
    "Happenings",
    "Sighting",
    "Sheet",
    "Sheets",
    "Look",
    "Seen",
    "Standing",
    "Place",
    "Placed",
];

/// Names of functions that say nothing about what the function does.
const RETIRED_FUNCTIONS: [&str; 12] = [
    "place", "placed", "places", "told", "seen", "look", "way", "ways", "standing", "scene", "sheet",
    "sheets",
];

/// Finds types and functions with a retired name.
pub(crate) fn no_retired_names(source: &Source) -> Vec<String> {
    let defines = |keyword: &str, name: &str| source.has(&[keyword, name]);
    let types = RETIRED_TYPES
        .into_iter()
        .filter(|name| ["struct", "enum", "trait", "type"].iter().any(|keyword| defines(keyword, name)))
        .map(|name| format!("{}: a type {name}: name it for what it is", source.path));
    let functions = RETIRED_FUNCTIONS
        .into_iter()
        .filter(|name| defines("fn", name))
        .map(|name| format!("{}: a function {name}: name it for what it does", source.path));
    types.chain(functions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_one_name_are_found() {
        let source = |path: &str, text: &str| Source::new(path, text);
        let a = source("crates/a/src/lib.rs", "pub struct Same; mod inner { pub struct Other; } struct Own;");
        let b =
            source("crates/b/src/lib.rs", "pub enum Same { Other }\npub(crate) struct Own;\nstruct Other;");
        let words = source("crates/c/src/lib.rs", "words! { /// Two.\nSame, \"same\" { A = \"a\", } }");
        let test = source("crates/d/tests/all.rs", "pub struct Same;");
        let check = |sources: &[Source]| shared_names(sources);
        assert_eq!(check(&[a, test]), Vec::<String>::new());
        let a = source("crates/a/src/lib.rs", "pub struct Same;");
        let found = check(&[a, b, words]);
        let all = "crates/a/src/lib.rs, crates/b/src/lib.rs, crates/c/src/lib.rs";
        assert_eq!(found, [format!("{all}: a public type of one name: Same")]);
    }

    #[test]
    fn retired_names_are_found() {
        let wrong = |text: &str| no_retired_names(&Source::new("src/a.rs", text)).len();
        assert_eq!(wrong("struct Told; fn told() {} use other::Way;"), 2);
        assert_eq!(wrong("enum Direction {} // struct Way\nfn replace(place: u8) { told(place) }"), 0);
    }
}
