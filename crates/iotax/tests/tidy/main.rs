//! Checks rules of this repository that neither Cargo nor clippy enforces.
//!
//! Each rule is a function that returns the violations as sentences, with a test below that it can fail. `the_house_is_tidy` applies them
//! to all files that are tracked by git or would be added.

mod circles;
mod links;
mod names;
mod walls;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use walls::{CRATES, ROOMS, WALLS};

/// The crates that may contain `unsafe`: those that generate load.
const UNSAFE_CRATES: [&str; 3] = ["crates/load/", "crates/engine/", "crates/netperf/"];

const MAX_LINES: usize = 600;

/// Maximum size of a file in bytes.
const MAX_SIZE: u64 = 3 << 19;

/// Files that may be larger than [`MAX_SIZE`], with the reason.
const LARGE: &[(&str, &str)] = &[];

/// Beginnings of paths that exist only on one machine.
const PRIVATE_PATHS: [&str; 5] = ["/home/", "/root/", "/Users/", "/work/", "/mnt/"];

/// Ends of host names that only a private network resolves.
const PRIVATE_HOSTS: [&str; 4] = [".internal", ".corp", ".lan", ".intranet"];

/// The source of every dependency.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// A Rust file: path from the top of the repository, text, and tokens as words. Comments and string contents are not among the words.
struct Source {
    path: String,
    text: String,
    words: Vec<String>,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let mut words = Vec::new();
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path} is not Rust: {error}"));
        add_words(tokens, &mut words);
        Self { path: path.to_owned(), text: text.to_owned(), words }
    }

    fn has(&self, sequence: &[&str]) -> bool {
        self.words.windows(sequence.len()).any(|window| window == sequence)
    }

    /// Returns the names that directly follow `name::`, singly or in braces, and an empty name where `name` is used on its own.
    fn beneath(&self, name: &str) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        for (index, _) in self.words.iter().enumerate().filter(|(_, word)| *word == name) {
            match &self.words[index + 1..] {
                [a, b, brace, rest @ ..] if a == ":" && b == ":" && brace == "{" => {
                    found.extend(firsts(rest));
                }
                [a, b, next, ..] if a == ":" && b == ":" => {
                    found.insert(next.as_str());
                }
                _ => {
                    found.insert("");
                }
            }
        }
        found
    }
}

fn add_words(tokens: TokenStream, words: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::None => ("", ""),
                };
                words.push(open.to_owned());
                add_words(group.stream(), words);
                words.push(close.to_owned());
            }
            TokenTree::Ident(name) => words.push(name.to_string()),
            TokenTree::Punct(sign) => words.push(sign.as_char().to_string()),
            TokenTree::Literal(_) => words.push("literal".to_owned()),
        }
    }
}

/// Returns the first word of each item in a list, starting after the opening brace.
fn firsts(words: &[String]) -> Vec<&str> {
    let (mut depth, mut at_start, mut found) = (1, true, Vec::new());
    for word in words {
        match word.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," => at_start = depth == 1,
            first if at_start => {
                found.push(first);
                at_start = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// Checks that each Cargo.toml depends only on the workspace crates allowed for it.
fn crate_walls(path: &str, manifest: &str) -> Vec<String> {
    let manifest: toml::Table = manifest.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
    let name = manifest.get("package").and_then(|package| package.get("name")?.as_str());
    let Some((name, allowed)) = WALLS.iter().find(|(crate_name, _)| Some(*crate_name) == name) else {
        return vec![format!("{path}: the crate {name:?} has no place in WALLS")];
    };
    let mut named = BTreeSet::new();
    dependencies(&manifest, &mut named);
    named
        .iter()
        .filter(|dependency| WALLS.iter().any(|(crate_name, _)| crate_name == *dependency))
        .filter(|dependency| !allowed.contains(&dependency.as_str()))
        .map(|dependency| format!("{path}: {name} must not depend on {dependency}"))
        .collect()
}

/// Collects the keys of all dependency tables, including those for tests, build scripts and platforms.
fn dependencies(table: &toml::Table, found: &mut BTreeSet<String>) {
    for (key, value) in table {
        let Some(value) = value.as_table() else { continue };
        if key.ends_with("dependencies") {
            found.extend(value.keys().cloned());
        } else {
            dependencies(value, found);
        }
    }
}

/// Checks that the modules of the binary use only the crates allowed for them.
fn room_walls(source: &Source) -> Vec<String> {
    let module = source.path.strip_prefix("crates/iotax/src/").unwrap_or_default();
    let Some((room, allowed)) = ROOMS.iter().find(|(room, _)| module.starts_with(room)) else {
        return Vec::new();
    };
    let may = |name: &str, module: &str| {
        allowed.iter().any(|share| *share == name || share.split_once("::") == Some((name, module)))
    };
    CRATES
        .iter()
        .flat_map(|name| source.beneath(name).into_iter().map(move |module| (*name, module)))
        .filter(|(name, module)| !may(name, module))
        .map(|(name, module)| {
            format!("{}: {room} may name {}, not {name}::{module}", source.path, allowed.join(", "))
        })
        .collect()
}

/// Checks that only `main` imports `cli`.
fn nobody_imports_cli(source: &Source) -> Vec<String> {
    let module = source.path.strip_prefix("crates/iotax/src/");
    if module.is_none_or(|module| module == "main.rs" || module.starts_with("cli")) {
        return Vec::new();
    }
    let named = ["crate", "super"].iter().any(|from| source.beneath(from).contains("cli"));
    if named { vec![format!("{}: only main may import cli", source.path)] } else { Vec::new() }
}

/// Checks that files have fewer than [`MAX_LINES`] lines.
fn file_length(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    if lines < MAX_LINES {
        return Vec::new();
    }
    vec![format!("{}: {lines} lines; divide it by purpose below {MAX_LINES}", source.path)]
}

/// Checks that `unsafe` appears only in [`UNSAFE_CRATES`].
fn unsafe_only_where_load_is_made(source: &Source) -> Vec<String> {
    if UNSAFE_CRATES.iter().any(|crate_path| source.path.starts_with(crate_path)) || !source.has(&["unsafe"])
    {
        return Vec::new();
    }
    vec![format!("{}: unsafe belongs to {} alone", source.path, UNSAFE_CRATES.join(" or "))]
}

/// Words that must not open a doc comment, which begins with a verb or a noun.
const CLAUSES: [&str; 8] = ["What ", "How ", "Whether ", "So many ", "So much ", "Of ", "Where ", "Which "];

fn opens_with_a_clause(source: &Source) -> Vec<String> {
    let doc = |line: &str| {
        let line = line.trim_start();
        line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! ")).map(str::to_owned)
    };
    let lines: Vec<Option<String>> = source.text.lines().map(doc).collect();
    let first = |at: usize| lines[at].as_ref().filter(|_| at == 0 || lines[at - 1].is_none());
    let opens = |text: &&String| CLAUSES.iter().any(|clause| text.starts_with(clause));
    let wrong = (0..lines.len()).filter_map(|at| Some((at, first(at).filter(opens)?)));
    wrong
        .map(|(at, text)| format!("{}:{}: a comment opens with a clause: {text}", source.path, at + 1))
        .collect()
}

/// Checks that lints are silenced by `expect` with a reason, not by `allow`.
fn no_allow(source: &Source) -> Vec<String> {
    if !source.has(&["[", "allow", "("]) {
        return Vec::new();
    }
    vec![format!("{}: use #[expect(lint, reason = \"...\")] instead of allow", source.path)]
}

/// Checks that only one file prints: it escapes control characters and reports errors of stdout.
fn printed_in_one_file(source: &Source) -> Vec<String> {
    const SAY: &str = "crates/iotax/src/say.rs";
    // An agent writes frames for a runner, and a member of a fleet for its coordinator.
    const ANSWERS: [&str; 2] = ["crates/iotax/src/agent.rs", "crates/iotax/src/cli/fleet/member.rs"];
    let everywhere: [&[&str]; 2] = [&["print", "!"], &["println", "!"]];
    let in_the_binary: [&[&str]; 4] =
        [&["eprint", "!"], &["eprintln", "!"], &["io", ":", ":", "stdout"], &["io", ":", ":", "stderr"]];
    let path = source.path.as_str();
    if !path.starts_with("crates/") || !path.contains("/src/") || path == SAY {
        return Vec::new();
    }
    let is_answer = |sequence: &[&str]| ANSWERS.contains(&path) && sequence.ends_with(&["stdout"]);
    let binary =
        in_the_binary.iter().filter(|sequence| path.starts_with("crates/iotax/") && !is_answer(sequence));
    let found = everywhere.iter().chain(binary).filter(|sequence| source.has(sequence));
    found.map(|sequence| format!("{path}: {} belongs to {SAY} alone", sequence.concat())).collect()
}

/// Finds open tasks in comments, which belong in issues.
fn nothing_left_to_do(path: &str, text: &str) -> Vec<String> {
    // In two parts, so that this file does not find itself.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let left = text.lines().enumerate().filter(|(_, line)| {
        line.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| marks.contains(&word))
    });
    left.map(|(index, line)| format!("{path}:{}: {}", index + 1, line.trim())).collect()
}

/// Checks that each Rust file is a root known to Cargo or reachable from one by `mod`.
fn no_dead_files(sources: &[Source]) -> Vec<String> {
    let by_path: BTreeMap<&str, &Source> =
        sources.iter().map(|source| (source.path.as_str(), source)).collect();
    let mut open: Vec<&str> = by_path.keys().copied().filter(|path| is_root(path)).collect();
    let mut reached: BTreeSet<&str> = open.iter().copied().collect();
    while let Some(path) = open.pop() {
        for module in modules(&by_path[path].words) {
            let stem = directory_of_modules(path);
            for candidate in [format!("{stem}/{module}.rs"), format!("{stem}/{module}/mod.rs")] {
                if let Some((path, _)) = by_path.get_key_value(candidate.as_str())
                    && reached.insert(path)
                {
                    open.push(path);
                }
            }
        }
    }
    let dead = by_path.keys().filter(|path| !reached.contains(*path));
    dead.map(|path| format!("{path}: no mod leads here")).collect()
}

/// Returns the names in `mod name;`.
fn modules(words: &[String]) -> impl Iterator<Item = &str> {
    words.windows(3).filter(|three| three[0] == "mod" && three[2] == ";").map(|three| three[1].as_str())
}

/// Returns whether Cargo compiles this file as a root: `crates/NAME/` and then `src/lib.rs`, `tests/any.rs`, `tests/any/main.rs` ..., or a
/// target for fuzzing.
fn is_root(path: &str) -> bool {
    // Listed in fuzz/Cargo.toml; their shared code is a crate. A test copies the files in examples.
    if ["fuzz/fuzz_targets/", "examples/"].iter().any(|dir| path.starts_with(dir))
        || path == "fuzz/src/lib.rs"
    {
        return true;
    }
    let parts: Vec<&str> = path.split('/').skip(2).collect();
    match parts.as_slice() {
        ["build.rs"] | ["src", "lib.rs" | "main.rs"] => true,
        ["tests" | "benches" | "examples", rest @ ..] => matches!(rest, [_] | [_, "main.rs"]),
        _ => false,
    }
}

/// Returns the directory of the modules that a file declares.
fn directory_of_modules(path: &str) -> &str {
    let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
    if file == "mod.rs" || is_root(path) { directory } else { path.strip_suffix(".rs").unwrap_or(path) }
}

/// Checks the size of files, to keep clones small.
fn file_size(path: &str, bytes: u64) -> Vec<String> {
    if bytes <= MAX_SIZE || LARGE.iter().any(|(large, _)| *large == path) {
        return Vec::new();
    }
    vec![format!("{path}: {bytes} bytes; above {MAX_SIZE} a file needs a place in LARGE, with a reason")]
}

/// Finds paths and hosts that exist only on one machine.
fn no_private_paths(path: &str, text: &str) -> Vec<String> {
    let is_apart = |c: char| c.is_whitespace() || "\"'`()<>[]=,;".contains(c);
    let is_private = |word: &&str| {
        let host = word.split("//").nth(1).unwrap_or(word).split(['/', ':']).next().unwrap_or_default();
        PRIVATE_PATHS.iter().any(|start| word.starts_with(start))
            || PRIVATE_HOSTS.iter().any(|end| host.trim_end_matches('.').ends_with(end))
    };
    text.split(is_apart)
        .filter(is_private)
        .map(|word| format!("{path}: {word} is a place that readers do not have"))
        .collect()
}

/// Checks that every dependency comes from the public registry.
fn public_registry(lock: &str) -> Vec<String> {
    let sources = lock.lines().filter_map(|line| line.strip_prefix("source = "));
    sources
        .filter(|source| source.trim_matches('"') != REGISTRY)
        .map(|source| format!("Cargo.lock: {source} is not {REGISTRY}"))
        .collect()
}

/// Returns the top of the repository, and the relative paths of all files that are tracked by git or would be added; `None` outside a
/// clone.
fn files() -> Option<(PathBuf, Vec<String>)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&top)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(listed.stdout).expect("paths in UTF-8");
    let paths = text.split('\0').filter(|path| top.join(path).is_file()).map(str::to_owned).collect();
    Some((top, paths))
}

/// Returns whether the file has one of these extensions.
fn is_kind(path: &str, extensions: &[&str]) -> bool {
    Path::new(path)
        .extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|e| extensions.contains(&e))
}

/// Applies the rules for text files.
fn text_rules(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if path == "Cargo.lock" {
        wrong.extend(public_registry(text));
    }
    if path.starts_with("crates/") && path.ends_with("/Cargo.toml") {
        wrong.extend(crate_walls(path, text));
    }
    if is_kind(path, &["md", "toml"]) || path.starts_with("scripts/") || path.starts_with(".ci/") {
        wrong.extend(no_private_paths(path, text));
    }
    if is_kind(path, &["rs", "toml"]) || path.starts_with("scripts/") || path.starts_with(".ci/") {
        wrong.extend(nothing_left_to_do(path, text));
    }
    wrong
}

#[test]
fn the_house_is_tidy() {
    let Some((top, paths)) = files() else {
        iotax_testkit::skip!("this is no git clone, so nobody knows which files belong to the house");
    };
    let mut wrong = Vec::new();
    let (mut sources, mut documents) = (Vec::new(), Vec::new());
    for path in &paths {
        let full_path = top.join(path);
        wrong.extend(file_size(path, full_path.metadata().expect("listed a moment ago").len()));
        let Ok(text) = std::fs::read_to_string(&full_path) else { continue };
        wrong.extend(text_rules(path, &text));
        if is_kind(path, &["rs"]) {
            sources.push(Source::new(path, &text));
        }
        if is_kind(path, &["md"]) {
            documents.push((path.as_str(), text));
        }
    }
    assert!(
        sources.len() > 20 && paths.iter().any(|path| path == "Cargo.lock"),
        "the wrong place: {paths:?}"
    );
    let rules = [
        room_walls,
        nobody_imports_cli,
        file_length,
        unsafe_only_where_load_is_made,
        names::no_retired_names,
        no_allow,
        opens_with_a_clause,
        printed_in_one_file,
    ];
    for rule in rules {
        wrong.extend(sources.iter().flat_map(rule));
    }
    wrong.extend(no_dead_files(&sources));
    wrong.extend(circles::circles(&sources));
    wrong.extend(names::shared_names(&sources));
    let documents = documents.iter().map(|(path, text)| (*path, text.as_str())).collect();
    wrong.extend(links::dead_links(&documents, &paths.iter().map(String::as_str).collect()));
    wrong.extend(links::contents(&documents));
    let tests = std::fs::read_to_string(top.join(links::TESTS)).expect("listed");
    wrong.extend(links::named_tests(&tests, |name| sources.iter().any(|source| source.has(&["fn", name]))));
    assert!(wrong.is_empty(), "the house is not tidy:\n{}", wrong.join("\n"));
}

mod each_rule_can_fail {
    use super::*;

    #[test]
    fn crate_walls_hold() {
        let manifest = |name: &str, rest: &str| format!("[package]\nname = \"{name}\"\n{rest}");
        let check = |name: &str, rest: &str| crate_walls("x/Cargo.toml", &manifest(name, rest)).len();
        let rig = "iotax-testbed.workspace = true";
        assert_eq!(check("iotax-engine", "[dependencies]\niotax-model.workspace = true\nserde = \"1\""), 0);
        assert_eq!(check("iotax", &format!("[dependencies]\n{rig}")), 0);
        assert_eq!(check("iotax-engine", &format!("[dependencies]\n{rig}")), 1);
        assert_eq!(check("iotax-analysis", &format!("[dev-dependencies]\n{rig}")), 1);
        assert_eq!(check("iotax-model", &format!("[target.'cfg(unix)'.dependencies]\n{rig}")), 1);
        assert_eq!(check("iotax-testbed", "[dependencies.iotax-engine]\nworkspace = true"), 1);
        assert_eq!(check("iotax-engine", "[dependencies]\niotax-netperf.workspace = true"), 1);
        assert_eq!(check("iotax-tenth", ""), 1);
    }

    #[test]
    fn room_walls_hold() {
        let check = |path: &str, text: &str| {
            room_walls(&Source::new(&format!("crates/iotax/src/{path}"), text)).len()
        };
        assert_eq!(check("agent.rs", "use iotax_engine::measure; use iotax_testbed::monitor::Monitor;"), 0);
        assert_eq!(check("agent.rs", "use iotax_testbed::{monitor};"), 0);
        assert_eq!(check("agent/port.rs", "use iotax_testbed::{monitor::{self, Monitor}, guest};"), 1);
        assert_eq!(check("agent.rs", "use iotax_testbed as rig;"), 1);
        assert_eq!(check("init.rs", "fn f() { iotax_report() }"), 1);
        assert_eq!(check("runner/run.rs", "use iotax_testbed::target; use iotax_analysis::store;"), 0);
        assert_eq!(
            check("runner/run.rs", "// iotax_engine makes the load\nconst A: &str = \"iotax_engine\";"),
            0
        );
        assert_eq!(check("runner/run.rs", "fn f() { iotax_engine::overhead_ns(); }"), 1);
        assert_eq!(check("cli.rs", "use iotax_testbed::host_info;"), 0);
    }

    #[test]
    fn cli_is_not_imported() {
        let check = |path: &str, text: &str| nobody_imports_cli(&Source::new(path, text)).len();
        assert_eq!(check("crates/iotax/src/runner.rs", "use crate::cli::Flags;"), 1);
        assert_eq!(check("crates/iotax/src/runner.rs", "use crate::{agent, cli::{Flags, Level}};"), 1);
        assert_eq!(check("crates/iotax/src/runner.rs", "fn f(flags: super::cli::Flags) {}"), 1);
        assert_eq!(check("crates/iotax/src/runner.rs", "use crate::{agent::{cli}, client};"), 0);
        assert_eq!(check("crates/iotax/src/main.rs", "use crate::cli::Flags;"), 0);
        assert_eq!(check("crates/iotax/src/cli/bench.rs", "use crate::cli::Flags;"), 0);
    }

    #[test]
    fn long_files_are_found() {
        let check = |lines: usize| file_length(&Source::new("a.rs", &"\n".repeat(lines))).len();
        assert_eq!((check(MAX_LINES - 1), check(MAX_LINES)), (0, 1));
    }

    #[test]
    fn unsafe_is_found() {
        let check = |path: &str, text: &str| unsafe_only_where_load_is_made(&Source::new(path, text)).len();
        assert_eq!(check("crates/testbed/src/a.rs", "fn f() { unsafe { g() } }"), 1);
        assert_eq!(check("crates/testbed/src/a.rs", "#[unsafe(no_mangle)] fn f() {}"), 1);
        assert_eq!(
            check("crates/testbed/src/a.rs", "// unsafe\n#![deny(unsafe_code)]\nconst A: &str = \"unsafe\";"),
            0
        );
        assert_eq!(check("crates/engine/src/a.rs", "unsafe fn f() {}"), 0);
        assert_eq!(check("crates/netperf/src/a.rs", "unsafe fn f() {}"), 0);
        assert_eq!(check("crates/load/src/a.rs", "unsafe fn f() {}"), 0);
    }

    #[test]
    fn a_comment_opens_with_a_verb_or_a_noun() {
        let check = |text: &str| opens_with_a_clause(&Source::new("a.rs", text)).len();
        assert_eq!(check("/// Returns it.\n/// What follows is a second line.\nfn f() {}"), 0);
        assert_eq!(check("//! What it is.\n\n/// Whether it is.\nfn f() {}"), 2);
    }

    #[test]
    fn allow_is_found() {
        let check = |text: &str| no_allow(&Source::new("a.rs", text)).len();
        assert_eq!(check("#[allow(dead_code)] fn f() {}"), 1);
        assert_eq!(check("#![allow(dead_code)]"), 1);
        assert_eq!(
            check("// #[allow(dead_code)]\n#[expect(dead_code, reason = \"x\")] fn allow() { allow() }"),
            0
        );
    }

    #[test]
    fn printing_elsewhere_is_found() {
        let check = |path: &str, text: &str| printed_in_one_file(&Source::new(path, text)).len();
        assert_eq!(check("crates/report/src/a.rs", "fn f() { println!(); print!(\"\"); eprintln!() }"), 2);
        assert_eq!(
            check("crates/iotax/src/cli/a.rs", "fn f() { eprintln!(); io::stdout(); std::io::stderr() }"),
            3
        );
        assert_eq!(check("crates/iotax/src/agent.rs", "fn f() { io::stdout(); eprintln!() }"), 1);
        assert_eq!(check("crates/iotax/src/a.rs", "fn f() { command.stdout(x); print_line!() }"), 0);
        assert_eq!(check("crates/iotax/src/say.rs", "fn f() { io::stdout() }"), 0);
        assert_eq!(check("crates/report/tests/a.rs", "fn f() { println!() }"), 0);
    }

    #[test]
    fn what_is_left_to_do_is_found() {
        let mark = concat!("TO", "DO");
        assert_eq!(
            nothing_left_to_do("a.rs", &format!("fn f() {{}}\n// {mark}: more")),
            [format!("a.rs:2: // {mark}: more")]
        );
        assert!(
            nothing_left_to_do("a.rs", &format!("let {mark}S = 1; // {}", mark.to_lowercase())).is_empty()
        );
    }

    #[test]
    fn dead_files_are_found() {
        let sources = [
            ("crates/a/src/lib.rs", "mod one; pub mod two; // mod dead;"),
            ("crates/a/src/one.rs", "mod below; #[cfg(test)] mod tests { }"),
            ("crates/a/src/one/below.rs", ""),
            ("crates/a/src/two/mod.rs", "mod below;"),
            ("crates/a/src/two/below.rs", ""),
            ("crates/a/src/two/dead.rs", ""),
            ("crates/a/src/below.rs", ""),
            ("crates/a/src/dead.rs", "mod dead;"),
            ("crates/a/tests/it.rs", "mod common;"),
            ("crates/a/tests/common/mod.rs", ""),
            ("crates/a/tests/big/main.rs", "mod part;"),
            ("crates/a/tests/big/part.rs", ""),
            ("crates/a/tests/big/dead.rs", ""),
            ("fuzz/fuzz_targets/one.rs", ""),
        ]
        .map(|(path, text)| Source::new(path, text));
        let dead: Vec<String> = ["src/below.rs", "src/dead.rs", "src/two/dead.rs", "tests/big/dead.rs"]
            .map(|path| format!("crates/a/{path}: no mod leads here"))
            .into();
        assert_eq!(no_dead_files(&sources), dead);
    }

    #[test]
    fn large_files_are_found() {
        assert_eq!((file_size("a.bin", MAX_SIZE).len(), file_size("a.bin", MAX_SIZE + 1).len()), (0, 1));
        assert!(LARGE.iter().all(|(_, reason)| !reason.is_empty()));
    }

    #[test]
    fn private_places_are_found() {
        let check = |text: &str| no_private_paths("a.md", text).len();
        for path in PRIVATE_PATHS {
            assert_eq!(check(&format!("run `{path}me/iotax`")), 1, "{path}");
        }
        assert_eq!(check("see https://git.example.internal/x and [build.corp:8080]"), 2);
        assert_eq!(check("kept in /srv/images, /srv/home/x and https://example.org/a.internal"), 0);
    }

    #[test]
    fn foreign_registries_are_found() {
        assert!(public_registry(&format!("name = \"a\"\nsource = \"{REGISTRY}\"\n")).is_empty());
        assert_eq!(public_registry("source = \"registry+https://mirror.example/index\"\n").len(), 1);
    }
}
