//! Examples of every command: in --help, in man pages, and in the output of `iotax` without arguments.

use std::fmt::Write as _;

/// An example's command line, and the question that it answers or the task that it does.
type Example = (&'static str, &'static str);

/// The examples that `iotax` shows without arguments.
const FIRST: &[Example] = &[
    ("iotax ladder /srv/images", "What does each disk format cost my VM?"),
    ("iotax bench /srv/images --rw randread --iodepth 32 --runtime 10", "How fast is this disk?"),
    (
        "iotax run job.fio --target /srv/images --target vm-qcow2:/srv/images",
        "My fio job, on the host and in a guest?",
    ),
    ("iotax compare 12 17 --fail-if 'slower > 5%'", "Is run 17 slower than run 12, or is it noise?"),
    ("iotax net ladder", "And the network?"),
];

/// The examples of each command and subcommand. A command with subcommands shows examples of some subcommands.
const OF_COMMANDS: &[(&str, &[Example])] = &[
    (
        "ladder",
        &[
            ("iotax ladder /srv/images", "Raw, qcow2 and a snapshot on the host and in guests, 3 minutes"),
            (
                "iotax ladder /srv/images --time 15m --rungs vm-raw,vm-qcow2",
                "Two rungs, in smaller intervals",
            ),
            ("iotax ladder --device /dev/sdb --overwrite /dev/sdb", "A whole device, raw and with LVM"),
            ("iotax ladder /srv/images --like web1", "Disks as the libvirt domain web1 has them"),
        ],
    ),
    (
        "bench",
        &[
            ("iotax bench /srv/images --rw randread --iodepth 32", "A new file in a directory"),
            ("iotax bench /dev/sdb --runtime 30 --ramp-time 5", "An existing device, which is only read"),
            ("iotax bench ssh://root@box/srv/new.dat --size 4g", "A new file on another machine"),
            ("iotax bench podman://web/data/new.dat --size 4g", "A new file in a container"),
            ("iotax bench libvirt://web1 --size 4g", "A disk attached to a running guest"),
            ("iotax bench new.dat --rw randrw --verify xxh3", "Check that what is read was written"),
        ],
    ),
    (
        "run",
        &[
            ("iotax run plan.toml", "A plan"),
            ("iotax run plan.toml --repeat 1 --runtime 2", "A quick try of it"),
            ("iotax run job.fio --target /srv/a --target vm-qcow2:/srv/a", "A fio job on host and guest"),
            ("iotax run job.fio --output-format json --output job.json", "The results as fio prints them"),
        ],
    ),
    (
        "curve",
        &[
            ("iotax curve /srv/data.img", "A file, which is only read"),
            ("iotax curve host-file:/srv vm-raw:/srv", "What a guest costs at each load"),
            ("iotax curve /srv --rw randrw --bs 8k --time 10m", "A mixed load, for longer"),
        ],
    ),
    (
        "tune",
        &[
            ("iotax tune /srv/images", "What suits the storage of a directory, 3 minutes"),
            ("iotax tune /dev/sdb --try scheduler,nr_requests=64:256", "These, on a disk that is only read"),
            ("iotax tune vm-raw:/srv --try cache,aio --time 10m", "A guest's disk, for longer"),
        ],
    ),
    (
        "ask",
        &[
            ("iotax ask /srv/data.img --slo 'p99 <= 0.5ms'", "How many random 4k reads a second"),
            ("iotax ask host-file:/srv vm-qcow2:/srv --slo 'p99 <= 1ms'", "What a guest costs of that"),
            (
                "iotax ask /srv --rw randrw --bs 8k --rwmixread 50 --slo 'p99 <= 2ms' --iops 20000",
                "Whether a mixed load is possible",
            ),
        ],
    ),
    (
        "watch",
        &[
            (
                "iotax watch /srv/data --event 'freeze = fsfreeze -f /srv; sleep 2; fsfreeze -u /srv'",
                "What two seconds of a frozen filesystem cost",
            ),
            (
                "iotax watch /dev/mapper/lun --overwrite /dev/mapper/lun --event 'pull@20s = ip link set eth1 down' --require 'gap < 30s' --require 'lost = 0'",
                "A path fails over, and no write is lost",
            ),
        ],
    ),
    (
        "top",
        &[
            ("iotax top", "Every layer, who uses it, and how long it takes"),
            ("iotax top --once --json -", "One interval for programs"),
            ("iotax top --record night.top --interval 10", "Record, and later: iotax top --replay night.top"),
        ],
    ),
    (
        "doctor",
        &[
            ("iotax doctor", "This machine with its disks and network"),
            ("iotax doctor /var/lib/libvirt/images/web1.qcow2", "All below an image, and its running guest"),
            ("iotax doctor web1", "A libvirt domain, by name or as an XML file"),
            ("iotax doctor ssh://root@box/srv --fail-if cost", "A path on another machine, for a script"),
        ],
    ),
    ("mark", &[("iotax mark 'cable pulled'", "From another terminal, while a watch measures")]),
    (
        "fit",
        &[
            ("iotax fit etcd /var/lib/etcd", "May etcd live here?"),
            ("iotax fit exchange host-file:/srv vm-qcow2:/srv", "On the host, and in a guest"),
            ("iotax fit ./orders.toml /srv/db", "Limits of your own"),
        ],
    ),
    (
        "suite",
        &[
            ("iotax suite --list", "The suites"),
            ("iotax suite bonnie /srv/images", "What bonnie++ measures"),
            ("iotax suite sizes /srv/images vm-qcow2:/srv/images", "Block sizes, on host and guest"),
        ],
    ),
    (
        "flush",
        &[
            ("iotax flush /srv/images", "What each way of making a write durable costs"),
            (
                "iotax flush host-file:/srv/images virtio-qcow2:/srv/images",
                "And with QEMU's block layer above",
            ),
            (
                "iotax flush /srv --numjobs 1,8 --methods fdatasync,fsync",
                "One job that commits, and eight at once",
            ),
            (
                "iotax flush /srv --bs 512,4k,64k --iodepth 1,8,32 --layout filled,allocated",
                "By size, depth and state of the file",
            ),
        ],
    ),
    (
        "audit",
        &[
            ("iotax audit /srv/images", "The limit on I/Os or bytes in front of it, and bursts"),
            (
                "iotax audit /dev/vdb --overwrite /dev/vdb --promise iops=3000,bytes=125MB/s",
                "What a cloud promised of a disk, held against it",
            ),
            ("iotax audit /srv --runtime 40m --repeat 1", "Long enough for a burst of half an hour to end"),
        ],
    ),
    (
        "crash",
        &[
            (
                "iotax crash virtio-raw:/srv/images virtio-qcow2:/srv/images",
                "What a power cut takes of an image",
            ),
            (
                "iotax crash '/srv > raw file > virtio' '/srv > raw file > virtio cache=unsafe aio=threads'",
                "What a cache mode risks, and gains",
            ),
            ("iotax crash /srv/images --cuts 40 --fdatasync 1", "A file, flushed after each write"),
            (
                "iotax crash /srv/images --application sqlite",
                "Commits of a database, by its journal mode; also postgresql",
            ),
        ],
    ),
    (
        "record",
        &[
            ("iotax record /srv/images -o day.parquet --time 10m", "The I/O of the disk below a path"),
            (
                "iotax record /dev/sdb -o vm.parquet --pid 4711",
                "What one process issues, such as a guest's QEMU",
            ),
        ],
    ),
    (
        "trace",
        &[
            ("iotax trace day.parquet", "What it holds, and the closest synthetic workload"),
            (
                "iotax trace a.parquet b.parquet --export parquet both.parquet",
                "Two traces as one, each in a part of the target of its own",
            ),
        ],
    ),
    (
        "powercut",
        &[(
            "iotax powercut start /srv/disk --journal ssh://me@other/var/tmp/journal",
            "Write until the plug is pulled",
        )],
    ),
    (
        "powercut start",
        &[(
            "iotax powercut start /srv/disk --journal ssh://me@other/var/tmp/journal",
            "Write until the plug is pulled",
        )],
    ),
    (
        "powercut check",
        &[(
            "iotax powercut check /srv/disk --journal ssh://me@other/var/tmp/journal",
            "What was acknowledged and is lost?",
        )],
    ),
    (
        "net",
        &[
            ("iotax net ladder", "What each network path costs on this machine"),
            ("iotax net run box --time 10", "The throughput to a server"),
        ],
    ),
    ("store", &[("iotax store init postgres://iotax@db/iotax --reader viewers", "A store for a team")]),
    (
        "serve",
        &[
            ("iotax serve", "The runs of this machine in a browser"),
            (
                "iotax serve --db postgres://iotax@db/iotax --listen 0.0.0.0:8443 --token-file FILE --tls-cert CERT --tls-key KEY",
                "A team's, over TLS",
            ),
        ],
    ),
    ("fleet", &[("iotax fleet run plan.toml --hosts ssh://root@a,ssh://root@b", "Are two machines alike?")]),
    (
        "fleet run",
        &[
            ("iotax fleet run plan.toml --hosts ssh://root@a,ssh://root@b", "Are two machines alike?"),
            ("iotax fleet run plan.toml --hosts rack.txt --mode shared", "All against one shared storage"),
            ("iotax fleet run plan.toml --hosts local:3", "A try on this machine"),
        ],
    ),
    ("fleet list", &[("iotax fleet list", "Which fleets there are")]),
    ("fleet report", &[("iotax fleet report 5f0c21aa", "The result of a fleet again")]),
    ("fleet status", &[("iotax fleet status 5f0c21aa", "What its members do now")]),
    ("fleet drain", &[("iotax fleet drain 5f0c21aa", "Stop after the measurement that goes on")]),
    ("fleet cancel", &[("iotax fleet cancel 5f0c21aa", "Stop at once")]),
    ("fleet resume", &[("iotax fleet resume 5f0c21aa", "Go on with it")]),
    (
        "net ladder",
        &[
            ("iotax net ladder", "Every path that this machine can build, 3 minutes"),
            ("iotax net ladder --rungs veth,vm-virtio,vm-e1000 --workloads tcp-upload,udp-rtt", "Two guests"),
            ("iotax net ladder --peer ssh://box", "And the path to another machine"),
        ],
    ),
    (
        "net serve",
        &[
            ("iotax net serve --bind 0.0.0.0", "Serve on every address"),
            ("iotax net serve --one-off --json", "One test, its results as iperf3 prints them"),
        ],
    ),
    (
        "net run",
        &[
            ("iotax net run box", "Upload for 10 seconds"),
            ("iotax net run box --reverse --parallel 4", "Download over four streams"),
            ("iotax net run box --udp --bitrate 100M", "Datagrams at a rate, and their loss"),
        ],
    ),
    (
        "net ping",
        &[
            ("iotax net ping box", "Round trips one after another"),
            ("iotax net ping box --rate 1000 --under-load", "At a rate: idle, and beside a transfer"),
            ("iotax net ping box --icmp", "Any host, without a server"),
        ],
    ),
    ("plan", &[("iotax plan check plan.toml", "Can this machine run it?")]),
    (
        "plan check",
        &[
            ("iotax plan check plan.toml", "Can this machine run it?"),
            ("iotax plan check job.fio", "Does iotax know all its options?"),
        ],
    ),
    (
        "plan show",
        &[
            ("iotax plan show plan.toml", "Its cells, time and space"),
            ("iotax plan show job.fio --toml", "A job file as a plan"),
        ],
    ),
    ("plan schema", &[("iotax plan schema", "For editors that complete and check TOML")]),
    (
        "resume",
        &[
            ("iotax resume 17", "Go on with a run that was stopped"),
            ("iotax resume 17 --time 20m", "Its plan again, for longer, because not all was decided"),
            ("iotax resume 17 --repeat 10", "Add rounds up to ten"),
        ],
    ),
    (
        "import",
        &[
            ("iotax import fio.json", "A result of fio"),
            ("iotax import bonnie.txt iozone.txt --markdown", "Several tools, as tables for a ticket"),
        ],
    ),
    (
        "list",
        &[
            ("iotax list", "Runs, newest last"),
            ("iotax list qcow2 --tag nightly --limit 10", "The newest that have a word and a tag"),
            ("iotax list --json", "For programs"),
        ],
    ),
    ("note", &[("iotax note 17 --tag nightly 'new firmware'", "What was special about a run")]),
    ("push", &[("iotax push 17 --to postgres://me@db/iotax", "A run to the team's store")]),
    ("pull", &[("iotax pull --tag release --from postgres://me@db/iotax", "The runs with a tag from there")]),
    (
        "store init",
        &[(
            "iotax store init postgres://owner@db/iotax --reader viewers --writer lab",
            "A store for a team, with its roles",
        )],
    ),
    (
        "report",
        &[
            ("iotax report", "The newest run again"),
            ("iotax report 17 --detail", "Every table and remark of a run"),
            ("iotax report 12 15 17", "Runs side by side"),
            ("iotax report 17 --html report.html", "With pictures"),
        ],
    ),
    (
        "export",
        &[
            ("iotax export 17 --format fio-json --output 17.json", "As fio's JSON"),
            ("iotax export 17 --format csv --output results", "Tables for a spreadsheet"),
        ],
    ),
    (
        "compare",
        &[
            ("iotax compare 12 17", "Two runs"),
            ("iotax compare 17:vm-raw 17:vm-qcow2", "Two targets of one run"),
            ("iotax compare main.json branch.json --fail-if 'slower > 5%'", "A gate for CI"),
        ],
    ),
    (
        "trend",
        &[
            ("iotax trend", "Changes over all runs of the newest run's plan"),
            ("iotax trend nightly --target vm-qcow2 --metric latency_p99 --detail", "One cell, run by run"),
            ("iotax trend --plan nightly.toml --since 2026-11-01 --fail-if 'slower > 3%'", "A gate for CI"),
        ],
    ),
    (
        "verify",
        &[(
            "iotax verify /srv/disk/new.dat --journal /srv/other/journal",
            "Which acknowledged writes survived a power cut",
        )],
    ),
    (
        "clean",
        &[("iotax clean --dry-run", "What did a killed run leave behind?"), ("iotax clean", "Undo it")],
    ),
    ("completions", &[("iotax completions bash", "For ~/.local/share/bash-completion/completions/iotax")]),
    ("man", &[("iotax man", "The page of iotax"), ("iotax man --dir pages", "A page for every command")]),
];

/// Returns the text that `iotax` prints without arguments.
pub(super) fn first() -> String {
    format!(
        "iotax measures what every layer between a program and its disk costs per I/O.\n\n{}\nAll commands: iotax -h\n\
         All about one: iotax COMMAND --help\n",
        listed(FIRST)
    )
}

/// Returns the examples of a command for its --help; `None` if it has no examples. A subcommand's name includes its command's: `net run`.
pub(super) fn of(command: &str) -> Option<String> {
    let examples =
        if command.is_empty() { FIRST } else { OF_COMMANDS.iter().find(|(name, _)| *name == command)?.1 };
    Some(format!("Examples:\n{}", listed(examples).trim_end()))
}

fn listed(examples: &[Example]) -> String {
    examples.iter().fold(String::new(), |mut text, (line, meaning)| {
        let _ = writeln!(text, "  {meaning}\n    {line}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use clap::error::ErrorKind;
    use iotax_model::Plan;

    use super::*;
    use crate::cli::help;

    #[test]
    fn every_example_parses_and_is_one_of_its_command() {
        let of_commands = OF_COMMANDS.iter().flat_map(|(name, all)| all.iter().map(move |one| (*name, one)));
        for (name, (line, _)) in of_commands.chain(FIRST.iter().map(|one| ("", one))) {
            assert!(line.starts_with(format!("iotax {name}").trim_end()), "{name}: {line}");
            assert_eq!(refused(line), None, "{line}");
        }
        assert_eq!(FIRST.len(), 5);
    }

    #[test]
    fn every_command_in_the_documents_parses() {
        let (mut number, mut wrong) = (0, Vec::new());
        for path in documents() {
            let text = fs::read_to_string(&path).expect("text");
            for line in commands(&text) {
                // A command within a sentence may lack required arguments, or have a placeholder in capitals.
                let is_pattern = |kind, why: &str| {
                    let quoted = why.split('\'').nth(1).unwrap_or_default();
                    kind == ErrorKind::MissingRequiredArgument
                        || !quoted.is_empty() && quoted.chars().all(|c| c.is_ascii_uppercase())
                };
                let why = refused(line).filter(|(kind, why)| !is_pattern(*kind, why));
                wrong.extend(why.map(|(_, why)| format!("{}: {line}: {why}", path.display())));
                number += 1;
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(number > 100, "{number} commands");
    }

    #[test]
    fn every_whole_plan_in_the_documents_is_one() {
        let mut number = 0;
        for path in documents() {
            let text = fs::read_to_string(&path).expect("text");
            let snippets = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
            for plan in snippets.filter(|text| text.contains("[[target]]") && text.contains("[[workload]]")) {
                if let Err(why) = Plan::read(plan) {
                    panic!("{}: {why}", path.display());
                }
                number += 1;
            }
        }
        assert!(number > 0, "no plan was found");
    }

    #[test]
    fn a_wrong_command_in_a_document_is_found() {
        let text = "    iotax bench x --sice 4k   # no such flag\n$ iotax lader\nuse `iotax list` or `iotax run [PLAN]`\n";
        let found: Vec<_> = commands(text).map(|line| (line, refused(line).map(|(kind, _)| kind))).collect();
        let expected = [
            ("iotax bench x --sice 4k", Some(ErrorKind::UnknownArgument)),
            ("iotax lader", Some(ErrorKind::InvalidSubcommand)),
            ("iotax list", None),
        ];
        assert_eq!(found, expected);
    }

    /// Returns the README and every page of docs/.
    fn documents() -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let pages =
            fs::read_dir(root.join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
        pages.chain([root.join("README.md")]).collect()
    }

    /// Returns commands on separate lines and in backticks, without comments; skips placeholders.
    fn commands(text: &str) -> impl Iterator<Item = &str> {
        let lines = text.lines().flat_map(|line| {
            let alone = line.strip_prefix("    ").or(line.strip_prefix("$ "));
            alone.into_iter().chain(line.split('`').skip(1).step_by(2))
        });
        let bare = lines.map(|line| line.split(" #").next().unwrap_or(line));
        let unquoted = |line: &str| !line.contains('\'');
        let bare = bare.map(move |line| match line.split_once(" > ") {
            Some((command, _)) if unquoted(line) => command,
            _ => line.trim(),
        });
        bare.filter(|line| {
            line.starts_with("iotax ") && !line.contains(['[', '|', '<', '…']) && !line.contains("...")
        })
    }

    /// Returns clap's error about a command line, as kind and text; `None` if the line is valid or requests help.
    fn refused(line: &str) -> Option<(ErrorKind, String)> {
        let words = line.split_whitespace().fold(Vec::new(), joined);
        let error = help::command(80).try_get_matches_from(words).err()?;
        let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        (!is_help).then(|| (error.kind(), error.to_string()))
    }

    /// Appends a word, or a part of a word in single quotes.
    fn joined(mut words: Vec<String>, word: &str) -> Vec<String> {
        match words.last_mut() {
            Some(open) if open.starts_with('\'') => {
                open.push(' ');
                open.push_str(word);
                if open.ends_with('\'') {
                    *open = open.trim_matches('\'').to_owned();
                }
            }
            _ => words.push(word.to_owned()),
        }
        words
    }
}
