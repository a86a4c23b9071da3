//! Tests of targets in containers, with fake programs for Docker, LXC, Incus, LXD and Kubernetes.

use std::fs;

use serde_json::Value;

use crate::lab::{Lab, text};

#[test]
fn each_kind_of_container_is_reached_by_its_program() {
    for (url, program, called) in [
        ("docker://root@web", "docker", "exec -i --user root web sh"),
        ("lxc://web", "lxc-attach", "--name web --clear-env -- sh"),
        ("incus://web", "incus", "exec -T web -- sh"),
        ("lxd://web", "lxc", "exec -T web -- sh"),
        ("kubectl://shop/web:db", "kubectl", "exec -i -n shop web -c db -- sh"),
    ] {
        let lab = Lab::new();
        let (calls, cache) = (lab.path("calls"), lab.path("cache"));
        fs::create_dir(&cache).expect("made");
        let script = format!(
            "#!/bin/sh\necho \"$*\" >>{}\nexport XDG_CACHE_HOME={} TMPDIR=/nowhere\nexec sh\n",
            calls.display(),
            cache.display()
        );
        let target = format!("{url}{}", lab.work().join("new").display());
        let mut command = lab.iotax_with(program, &script);
        command.args([
            "bench",
            &target,
            "--json",
            "-",
            "--size",
            "8m",
            "--runtime",
            "300ms",
            "--ramp-time",
            "0s",
        ]);
        let output = command.output().expect("iotax starts");
        assert!(output.status.success(), "{url}: {}", text(&output.stderr));
        assert_eq!(fs::read_to_string(&calls).expect("it was called"), format!("{called}\n"));
        let run: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let container = run["targets"][0]["layers"].as_array().expect("layers").last().expect("one").clone();
        assert_eq!((&container["kind"], &container["name"]), (&"container".into(), &"web".into()), "{url}");
        lab.assert_nothing_left();
        assert_eq!(fs::read_dir(&cache).expect("there").count(), 0, "{url}: left there");
    }
}

#[test]
fn a_program_that_fails_or_is_missing_is_named_with_the_remedy() {
    for (url, program, fails, words) in [
        (
            "docker://web/x",
            "docker",
            "echo 'Error response from daemon: No such container: web'; exit 1",
            "check the container's name",
        ),
        (
            "kubectl://a/b/x",
            "kubectl",
            "echo 'Error from server (Forbidden): pods \"b\" is forbidden'; exit 1",
            "may not start commands",
        ),
        ("lxc://c1/x", "lxc-attach", "exit 1", "lxc-attach --name c1 --clear-env -- sh can start"),
    ] {
        let lab = Lab::new();
        let script = format!("#!/bin/sh\nexec >&2\n{fails}\n");
        let output = lab.iotax_with(program, &script).args(["bench", url, "--size", "8m"]).output();
        let output = output.expect("iotax starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{url}: {said}");
        assert!(said.contains(words), "{url}: {said}");
        lab.assert_nothing_left();
    }
    let lab = Lab::new();
    let output = lab.iotax().env("PATH", "/nowhere").args(["bench", "incus://c1/x", "--size", "8m"]).output();
    let said = text(&output.expect("iotax starts").stderr);
    assert!(said.contains("incus was not found in PATH"), "{said}");
}
