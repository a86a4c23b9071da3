//! Tests of existing images with overlays for writes, exports of other NBD servers, and counted errors.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use iotax_testkit::require;
use serde_json::Value;

use crate::fuse::{MIXED, layers, plan};
use crate::lab::{Lab, assert_valid, start_until, text};

fn measurements(json: &Value) -> &[Value] {
    json["measurements"].as_array().expect("measurements")
}

/// Asserts that every measurement contains reads and writes and no errors.
fn assert_mixed(json: &Value, count: usize) {
    assert_valid(json);
    assert_eq!(measurements(json).len(), count, "{json}");
    for measurement in measurements(json) {
        assert!(measurement["write"]["iops"].as_f64() > Some(0.0), "{measurement}");
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
}

fn of_qemu_img(arguments: &[&str]) {
    let done = Command::new("qemu-img").args(arguments).output().expect("qemu-img");
    assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
}

/// Images in several formats (raw, VMDK, qcow2 with a backing file, qcow2 with an external data file) with content and modification time.
fn images(lab: &Lab) -> Vec<(String, Vec<String>)> {
    let at = |name: &str| lab.path(name).display().to_string();
    let (raw, vmdk, base, top, split, data) =
        (at("a.raw"), at("a.vmdk"), at("base.qcow2"), at("top.qcow2"), at("split.qcow2"), at("split.data"));
    fs::write(&raw, vec![0x5a; 16 << 20]).expect("written");
    of_qemu_img(&["convert", "-O", "vmdk", &raw, &vmdk]);
    of_qemu_img(&["convert", "-O", "qcow2", &raw, &base]);
    of_qemu_img(&["create", "-q", "-f", "qcow2", "-b", "base.qcow2", "-F", "qcow2", &top]);
    let options = format!("data_file={data}");
    of_qemu_img(&["create", "-q", "-f", "qcow2", "-o", &options, &split, "16m"]);
    vec![
        (raw.clone(), vec![raw]),
        (vmdk.clone(), vec![vmdk]),
        (top.clone(), vec![top, base]),
        (split.clone(), vec![split, data]),
    ]
}

#[test]
fn writes_to_an_image_go_to_an_overlay_and_the_image_stays_as_it_is() {
    require!(program "qemu-storage-daemon", "qemu-img");
    let lab = Lab::new();
    let images = images(&lab);
    let files: Vec<&String> = images.iter().flat_map(|(_, files)| files).collect();
    let state = || -> Vec<_> {
        let of = |file: &&String| {
            (
                fs::read(file).expect("read"),
                fs::metadata(file).and_then(|found| found.modified()).expect("there"),
            )
        };
        files.iter().map(of).collect()
    };
    let before = state();
    let names = ["raw", "vmdk", "chain", "split"];
    let mut stacks: Vec<(&str, String)> = names
        .iter()
        .zip(&images)
        .map(|(name, (image, _))| (*name, format!("image {image} overlay=WORK > virtio")))
        .collect();
    stacks.push(("fuse", format!("image {} overlay=WORK > fuse", images[1].0)));
    let stacks: Vec<(&str, &str)> = stacks.iter().map(|(name, line)| (*name, line.as_str())).collect();
    let json = lab.json(&["run", &plan(&lab, &stacks, MIXED), "--yes", "--json", "-"]);
    assert_mixed(&json, 10);
    assert!(state() == before, "an image was changed");
    for name in names {
        assert!(layers(&json, name).contains(&"overlay"), "{json}");
    }
    lab.assert_nothing_left();

    // What was written is there until the end of the measurement.
    let line = format!("image {} overlay={} > virtio", images[1].0, lab.work().display());
    let verified = ["--rw=randwrite", "--verify=xxh3", "--runtime=500ms", "--json", "-"];
    let json = lab.json(&[&["bench", line.as_str()], &verified[..]].concat());
    for measurement in measurements(&json) {
        let verify = &measurement["verify"];
        assert!(verify["checked"].as_u64() > Some(0), "{measurement}");
        assert_eq!(verify["faults"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    assert!(state() == before, "an image was changed");

    let work = lab.work().display().to_string();
    for (line, words) in [
        (format!("image {} > virtio", images[1].0), "overlay=DIR"),
        (format!("image {} overlay=/none > virtio", images[1].0), "/none: no such directory"),
        (format!("image {} overlay={work} > nbd > virtio", images[1].0), "leave snapshot or overlay out"),
        (format!("image {} overlay={work} > fuse > loop", images[1].0), "nothing can stand on it"),
        (format!("image {} overlay={} > virtio", images[1].0, images[0].0), "not a directory"),
    ] {
        let refused = lab.run(&["bench", &line, "--rw=randwrite"]);
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(words), "{line}: {said}");
    }

    let plan = plan(&lab, &stacks[1..2], MIXED);
    for moment in ["creating files", "cell 1/", "cell 2/"] {
        let mut child = start_until(lab.iotax().args(["run", &plan, "--yes"]), moment);
        child.kill().expect("killed");
        child.wait().expect("it ended");
        assert!(lab.run(&["clean"]).status.success(), "{moment}");
        lab.assert_nothing_left();
        assert!(state() == before, "an image was changed");
    }
}

#[test]
fn an_overlay_is_not_put_on_an_image_that_a_machine_runs_on() {
    require!(program "qemu-storage-daemon", "qemu-img", "qemu-io");
    let lab = Lab::new();
    let path = lab.path("held.qcow2").display().to_string();
    of_qemu_img(&["create", "-q", "-f", "qcow2", &path, "16m"]);
    let mut holder =
        Command::new("qemu-io").args(["-f", "qcow2", &path, "-c", "sleep 20000"]).spawn().expect("held");
    thread::sleep(Duration::from_millis(500));
    let line = format!("image {path} overlay={} > virtio", lab.work().display());
    let refused = lab.run(&["bench", &line, "--rw=randwrite", "--runtime=300ms"]);
    let said = text(&refused.stderr);
    holder.kill().and_then(|()| holder.wait()).expect("ended");
    assert!(!refused.status.success() && said.contains("a program has it open to write it"), "{said}");
    lab.assert_nothing_left();
}

/// A server process; killed on drop.
pub(crate) struct Server(Child);

impl Server {
    /// Starts the server and waits until it accepts connections.
    pub(crate) fn start(command: &mut Command, connects: impl Fn() -> bool) -> Self {
        let server = Self(command.spawn().expect("a server"));
        for _ in 0..100 {
            if connects() {
                return server;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("{command:?}: nobody listens");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Returns an unused port.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

fn qemu_nbd(file: &Path, more: &[&str], connects: impl Fn() -> bool) -> Server {
    let mut command = Command::new("qemu-nbd");
    command.args(["--persistent", "--shared=0", "--format=raw", "--export-name=vm one"]).args(more).arg(file);
    Server::start(&mut command, connects)
}

#[test]
fn what_an_nbd_server_offers_is_read_and_written_only_if_it_is_named_twice() {
    require!(program "qemu-storage-daemon", "qemu-nbd", "qemu-img", "qemu-io", "nbdkit");
    let lab = Lab::new();
    let file = lab.path("served");
    fs::write(&file, vec![0x5a; 16 << 20]).expect("written");
    let port = free_port();
    let connects = |port: u16| move || TcpStream::connect(("127.0.0.1", port)).is_ok();
    let tcp = qemu_nbd(&file, &["--bind=127.0.0.1", &format!("--port={port}")], connects(port));
    let uri = format!("nbd://127.0.0.1:{port}/vm%20one");
    let json = lab.json(&["bench", &uri, "--runtime=300ms", "--json", "-"]);
    assert_valid(&json);
    let target = json["targets"][0]["name"].as_str().expect("a name").to_owned();
    let found = layers(&json, &target);
    assert!(found.starts_with(&["NBD server"]) && found.ends_with(&["virtio-blk export"]), "{found:?}");
    assert!(measurements(&json).iter().all(|one| one["read"]["iops"].as_f64() > Some(0.0)), "{json}");

    let write = ["--rw=randwrite", "--runtime=300ms"];
    let other = format!("nbd://127.0.0.1:{port}/other");
    for (arguments, words) in [
        (vec!["bench", &uri, write[0]], "name it twice: --overwrite"),
        (vec!["bench", &uri, write[0], "--overwrite", &uri], "it is not empty"),
        (vec!["bench", &uri, "--overwrite", &other], "no target is on that export"),
        (vec!["bench", "nbds://box/x"], "accepted: nbd://HOST[:PORT][/EXPORT]"),
        (vec!["bench", "nbd://127.0.0.1:1/x"], "127.0.0.1:1"),
        (vec!["bench", &other], "other"),
    ] {
        let refused = lab.run(&arguments);
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(words), "{arguments:?}: {said}");
        assert!(
            fs::read(&file).expect("read").iter().all(|byte| *byte == 0x5a),
            "{arguments:?}: it was written"
        );
    }
    let json = lab.json(&[
        "bench",
        &uri,
        write[0],
        write[1],
        "--overwrite",
        &uri,
        "--overwrite-signature",
        "--json",
        "-",
    ]);
    assert!(measurements(&json).iter().all(|one| one["write"]["iops"].as_f64() > Some(0.0)), "{json}");
    assert!(fs::read(&file).expect("read").iter().any(|byte| *byte != 0x5a), "nothing was written");
    drop(tcp);

    // An empty one, at a unix socket.
    let empty = lab.path("empty");
    fs::write(&empty, vec![0; 16 << 20]).expect("written");
    let socket = lab.path("nbd socket");
    let socket_option = format!("--socket={}", socket.display());
    let unix = qemu_nbd(&empty, &[&socket_option], || UnixStream::connect(&socket).is_ok());
    let uri = format!("nbd+unix:///vm%20one?socket={}", socket.display().to_string().replace(' ', "%20"));
    let written = ["--rw=randwrite", "--verify=xxh3", "--runtime=500ms", "--json", "-"];
    let done = lab.run(&[&["bench", &uri, "--overwrite", &uri], &written[..]].concat());
    let said = text(&done.stderr);
    assert!(
        done.status.success() && said.contains(&format!("what is written to {uri} stays on it")),
        "{said}"
    );
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    for measurement in measurements(&json) {
        assert!(measurement["verify"]["checked"].as_u64() > Some(0), "{measurement}");
        assert_eq!(measurement["verify"]["faults"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    let again = lab.run(&[&["bench", &uri, "--overwrite", &uri], &written[..]].concat());
    assert!(text(&again.stderr).contains("as what an earlier run wrote"), "{}", text(&again.stderr));
    drop(unix);
    lab.assert_nothing_left();

    // Another program, through FUSE, and in a plan.
    let port = free_port();
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--ipaddr=127.0.0.1", "--port", &port.to_string(), "memory", "16M"]);
    let _nbdkit = Server::start(&mut command, connects(port));
    let stack = format!("nbd://127.0.0.1:{port} > fuse");
    let json = lab.json(&[
        "run",
        &plan(&lab, &[("memory", &stack)], MIXED),
        "--overwrite",
        &format!("nbd://127.0.0.1:{port}"),
        "--yes",
        "--json",
        "-",
    ]);
    assert_mixed(&json, 2);
    lab.assert_nothing_left();
}

#[test]
fn an_image_that_another_program_overwrites_is_told_and_one_that_is_left_alone_is_not() {
    require!(program "qemu-storage-daemon", "qemu-img");
    let lab = Lab::new();
    let (base, top) = (lab.path("base.raw"), lab.path("top.qcow2").display().to_string());
    fs::write(&base, vec![1; 16 << 20]).expect("written");
    let below = base.display().to_string();
    of_qemu_img(&["create", "-q", "-f", "qcow2", "-F", "raw", "-b", &below, &top]);
    let stacks = [("image", format!("image {top} overlay=WORK > virtio"))];
    let stacks = [(stacks[0].0, stacks[0].1.as_str())];
    let plan = plan(&lab, &stacks, "[[workload]]\nrw = 'randrw'\nruntime = '3s'\n");
    let db = lab.path("runs.db").display().to_string();
    let changed = |run: &str| {
        let json = lab.json(&["report", run, "--db", &db, "--json"]);
        let warnings = json["warnings"].as_array().expect("warnings").iter();
        warnings.filter(|warning| warning["kind"] == "changed").cloned().collect::<Vec<Value>>()
    };
    for (run, is_changed) in [("1", true), ("2", false)] {
        let mut command = lab.iotax();
        command.args(["run", &plan, "--db", &db, "--yes"]);
        let mut child = start_until(&mut command, "round 2/2");
        thread::sleep(Duration::from_secs(1));
        if is_changed {
            let file = fs::File::options().write(true).open(&base).expect("opened");
            std::os::unix::fs::FileExt::write_all_at(&file, &[2; 4096], 8 << 20).expect("overwritten");
        }
        child.wait().expect("ended");
        let found = changed(run);
        assert_eq!(found.len(), usize::from(is_changed), "{found:?}");
        for warning in found {
            assert_eq!(warning["round"], 2, "{warning}");
            let evidence = warning["evidence"].as_str().expect("words");
            assert!(evidence.starts_with(&format!("{below} was written, during this")), "{evidence}");
        }
    }
    lab.assert_nothing_left();
}

#[test]
fn an_export_that_may_not_be_written_is_refused_before_anything_is_built() {
    require!(program "qemu-storage-daemon", "qemu-img", "qemu-io", "nbdkit");
    let lab = Lab::new();
    let port = free_port();
    let mut command = Command::new("nbdkit");
    command.args([
        "--foreground",
        "--readonly",
        "--ipaddr=127.0.0.1",
        "--port",
        &port.to_string(),
        "memory",
        "16M",
    ]);
    let _nbdkit = Server::start(&mut command, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let uri = format!("nbd://127.0.0.1:{port}");
    let refused = lab.run(&["bench", &uri, "--rw=randwrite", "--overwrite", &uri]);
    let said = text(&refused.stderr);
    assert!(
        refused.status.code() == Some(4)
            && said.contains("it cannot be opened to be written; its server may offer it read-only: "),
        "{said}"
    );
    assert!(lab.run(&["bench", &uri, "--runtime=300ms"]).status.success());
    lab.assert_nothing_left();
}

#[test]
fn errors_of_the_block_layer_are_counted_exactly() {
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let stacks =
        [("failing", "WORK > raw file > blkdebug errors=7 > virtio"), ("plain", "WORK > raw file > virtio")];
    let workload = "[[workload]]\nrw = 'randread'\niodepth = 4\n";
    let json = lab.json(&["run", &plan(&lab, &stacks, workload), "--yes", "--json", "-"]);
    assert_valid(&json);
    let failed = |target: &str| -> Vec<u64> {
        let own = measurements(&json).iter().filter(|measurement| measurement["target"] == target);
        own.map(|one| {
            one["errors"].as_array().into_iter().flatten().filter_map(|error| error["count"].as_u64()).sum()
        })
        .collect()
    };
    assert_eq!((failed("failing"), failed("plain")), (vec![7, 0], vec![0, 0]), "{json}");
    lab.assert_nothing_left();
}

#[test]
fn an_image_takes_its_space_and_its_files_as_it_is_told() {
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let stacks = [
        ("split", "WORK > qcow2 file data_file=true > virtio"),
        ("chain", "WORK > qcow2 file + 2 external snapshots data_file=true > virtio"),
        ("vhdx", "WORK > vhdx file subformat=fixed > virtio"),
        ("vpc", "WORK > vpc file subformat=fixed > fuse"),
        ("flat", "WORK > vmdk file subformat=monolithicFlat > virtio aio=threads"),
        ("extents", "WORK > vmdk file subformat=twoGbMaxExtentSparse > virtio aio=threads"),
        ("flat-extents", "WORK > vmdk file subformat=twoGbMaxExtentFlat > virtio aio=threads"),
    ];
    let json = lab.json(&["run", &plan(&lab, &stacks, MIXED), "--yes", "--json", "-"]);
    assert_mixed(&json, 14);
    lab.assert_nothing_left();
    for (line, words) in [
        (
            "WORK > vmdk file subformat=fixed > virtio",
            "subformat = \"fixed\" is none of vmdk's; accepted: dynamic",
        ),
        ("WORK > raw file data_file=true > virtio", "data_file needs format"),
        ("WORK > vmdk file subformat=monolithicFlat > virtio", "use aio = \"threads\""),
    ] {
        let refused = lab.run(&["run", &plan(&lab, &[("t", line)], MIXED), "--yes"]);
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(words), "{line}: {said}");
    }
    let mut child = start_until(lab.iotax().args(["run", &plan(&lab, &stacks, MIXED), "--yes"]), "cell 2/");
    child.kill().expect("killed");
    child.wait().expect("it ended");
    assert!(lab.run(&["clean"]).status.success());
    lab.assert_nothing_left();
}
