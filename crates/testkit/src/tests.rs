//! Tests that `scripts/requirements` lists everything that tests require, and that all its readers parse it alike.

use std::collections::BTreeSet;

use super::*;

const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Tools that no test starts: used only by the code, or missing on purpose.
const UNTESTED: [&str; 10] = [
    "chronyc",
    "passt",
    "smartctl",
    "ethtool",
    "docker",
    "lxc-attach",
    "incus",
    "lxc",
    "kubectl",
    "iotax-no-such-tool",
];

#[test]
fn what_is_missing_is_skipped_unless_it_was_promised() {
    let missing = ["thin_check (Debian: thin-provisioning-tools)".to_owned()];
    assert!(judge(&[], None) && judge(&[], Some("all")) && !judge(&missing, None));
    let words = |promised| {
        let failed = std::panic::catch_unwind(|| judge(&missing, Some(promised))).expect_err("a failure");
        failed.downcast_ref::<String>().expect("words").clone()
    };
    assert!(words("all").contains("thin-provisioning-tools"), "{}", words("all"));
    assert!(words("1").contains("expected \"all\""), "{}", words("1"));
}

#[test]
fn tests_are_thorough_only_if_they_were_asked_to_be() {
    assert!(!is_thorough(None) && is_thorough(Some("all")));
    assert!(std::panic::catch_unwind(|| is_thorough(Some("most"))).is_err());
}

#[test]
fn a_test_leaves_where_something_is_skipped() {
    fn lacks() -> Option<u8> {
        skip!("{} is not here", "what it needs");
    }
    fn has() -> Option<u8> {
        require!(program "sh");
        Some(1)
    }
    assert_eq!((lacks(), has()), (None, Some(1)));
}

#[test]
#[should_panic(expected = "iotax-no-such-tool is not in scripts/requirements")]
fn what_is_not_on_the_list_cannot_be_asked_for() {
    has(RequirementKind::Program, &["iotax-no-such-tool"]);
}

#[test]
fn a_kernel_counts_with_its_modules() {
    let root = std::env::temp_dir().join(format!("iotax-testkit-{}", std::process::id()));
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    write("boot/vmlinuz-6.1-a", "");
    write("boot/initrd.img-6.1-b", "");
    write("lib/modules/6.1-a/modules.dep", "kernel/ata/ahci.ko.xz: kernel/ata/libata.ko.xz\n");
    write("lib/modules/6.1-a/modules.builtin", "kernel/block/virtio_blk.ko\n");
    write("lib/modules/6.1-b/modules.dep", "kernel/net/e1000.ko:\n");
    let found: Vec<&str> = ["ahci", "libata", "virtio_blk", "e1000"]
        .into_iter()
        .filter(|name| kernel_has(&root, name))
        .collect();
    std::fs::remove_dir_all(&root).expect("removed");
    assert_eq!(found, ["ahci", "virtio_blk"]);
}

#[test]
fn nothing_is_on_the_list_twice() {
    let mut seen = BTreeSet::new();
    for one in requirements(LIST) {
        assert!(seen.insert((one.kind as u8, one.name)), "{one:?}");
    }
}

/// Returns the quoted texts that directly follow these words.
fn quoted_after<'a>(text: &'a str, words: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(words).skip(1).filter_map(|rest| rest.split('"').next())
}

/// Returns all Rust files of the crates but this one: path and text.
fn sources() -> Vec<(String, String)> {
    let mut open = vec![Path::new(TOP).join("crates")];
    let mut found = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).expect("readable").flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("testkit") {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(TOP).expect("below it").display().to_string();
                found.push((name, std::fs::read_to_string(&path).expect("text")));
            }
        }
    }
    found
}

#[test]
fn every_program_that_is_started_is_on_the_list() {
    let listed =
        |name: &str| requirements(LIST).any(|one| one.kind == RequirementKind::Program && one.name == name);
    let mut wrong = BTreeSet::new();
    let mut seen = 0;
    for (path, text) in sources() {
        let helped = text.split(" run(\"").skip(1).filter_map(|rest| rest.split_once("\", &["));
        let helped = helped.map(|(name, _)| name).filter(|name| !name.contains('"'));
        for name in quoted_after(&text, "Command::new(\"").chain(helped) {
            if !name.starts_with('/') && !listed(name) {
                wrong.insert(format!("{path} starts {name}"));
            }
            seen += 1;
        }
    }
    assert!(seen > 30, "the wrong place: {seen} programs are started");
    assert_eq!(wrong, BTreeSet::new(), "scripts/requirements must hold what is started");
}

#[test]
fn the_code_and_the_list_name_the_same_packages() {
    let mut seen = 0;
    for (path, text) in sources() {
        for (at, _) in text.match_indices("Program { name: \"") {
            let literal = text[at..].split('}').next().expect("a literal");
            let field = |field: &'static str| quoted_after(literal, field).next().expect("a field");
            let (name, package) = (field("name: \""), field("package: \""));
            // A tool that is outside of PATH is listed as a file.
            let is_it = |one: &Requirement<'_>| match one.kind {
                RequirementKind::Program => one.name == name,
                RequirementKind::File => Path::new(one.name).file_name().is_some_and(|file| file == name),
                RequirementKind::Kernel => false,
            };
            let listed = requirements(LIST).find(is_it);
            let named = listed.map(|one| one.package);
            assert!(
                named == Some(package) || UNTESTED.contains(&name),
                "{path}: {name} is of {package}; listed: {named:?}"
            );
            seen += 1;
        }
    }
    assert!(seen > 10, "the wrong place: {seen} programs are named");
}

#[test]
fn nobody_skips_by_hand() {
    let own = ["\"skipped:", VARIABLE, TIER];
    let by_hand = sources().into_iter().filter(|(_, text)| own.iter().any(|word| text.contains(word)));
    let by_hand: Vec<String> = by_hand.map(|(path, _)| path).collect();
    assert_eq!(by_hand, Vec::<String>::new(), "use require! and skip!");
}

#[test]
fn a_postgres_server_comes_and_goes() {
    require!(file postgres::PROGRAM);
    let mut server = postgres::PostgresServer::start();
    let (port, directory) = (server.port(), server.socket_directory().to_owned());
    assert!(server.database().contains("/test"));
    server.sql("test0", "CREATE TABLE a (b int); INSERT INTO a VALUES (7)");
    server.crash();
    assert!(!postgres::is_listening(port));
    server.start_again();
    assert_eq!(server.sql("test0", "SELECT b, b + 1 FROM a"), "7|8");
    drop(server);
    assert!(!postgres::is_listening(port) && !directory.exists());
}
