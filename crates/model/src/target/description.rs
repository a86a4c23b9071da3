//! One-line descriptions of targets.

use super::{FileSpec, GuestSpec, LvmSpec, NetPath, NetworkSpec, TargetSpec};

impl TargetSpec {
    /// The layers from the bottom up: `raw file > virtio-blk cache=none aio=io_uring > guest`.
    #[must_use]
    pub fn description(&self) -> String {
        let mut layers: Vec<String> = Vec::new();
        layers.extend(self.path.iter().chain(&self.device).map(|path| path.display().to_string()));
        layers.extend(self.lvm.as_ref().and_then(|lvm| lvm.vg.clone()));
        layers.extend(self.lvm.as_ref().map(volume));
        layers.extend(self.filesystem.as_ref().map(|filesystem| {
            let options = filesystem.mount_options.as_ref().map(|options| format!(" ({options})"));
            let nodatacow = if filesystem.nodatacow { " nodatacow" } else { "" };
            format!("{}{}{nodatacow}", filesystem.kind, options.unwrap_or_default())
        }));
        layers.extend(self.file.as_ref().map(file));
        layers.extend(self.loop_device.as_ref().map(|it| format!("loop direct_io={}", it.direct_io)));
        layers.extend(self.network.as_ref().map(network));
        if let Some((guest, network)) = self.guest.as_ref().zip(self.network.as_ref()) {
            layers.push(card(network));
            layers.push(machine(guest));
        } else if let Some(guest) = &self.guest {
            layers.push(format!("{} cache={} aio={}", guest.bus, guest.cache, guest.aio));
            layers.push(machine(guest));
            layers.extend(guest.filesystem.map(|filesystem| filesystem.to_string()));
        }
        let beside = self.neighbour.as_ref().map(|name| format!(", beside {name}")).unwrap_or_default();
        let settings = self.settings.as_ref().filter(|settings| !settings.is_empty());
        let settings = settings.map(|settings| format!(", {settings}")).unwrap_or_default();
        format!("{}{beside}{settings}", layers.join(" > "))
    }
}

fn volume(lvm: &LvmSpec) -> String {
    format!("{} LVM volume{}", lvm.kind, if lvm.snapshot { " + snapshot" } else { "" })
}

fn file(file: &FileSpec) -> String {
    let snapshot = file.snapshot.map(|kind| match file.backing_depth {
        Some(depth) => format!(" + {depth} {kind} snapshots"),
        None => format!(" + {kind} snapshot"),
    });
    format!("{} file{}", file.format, snapshot.unwrap_or_default())
}

fn network(network: &NetworkSpec) -> String {
    let path = match network.via {
        NetPath::Loopback => "loopback".to_owned(),
        NetPath::Veth => "veth pair".to_owned(),
        NetPath::Bridge => "bridge > tap".to_owned(),
        NetPath::User => "user network (slirp)".to_owned(),
        NetPath::Passt => "passt".to_owned(),
        NetPath::Remote | NetPath::Server => format!("to {}", network.peer.as_deref().unwrap_or_default()),
    };
    network.mtu.map_or_else(|| path.clone(), |mtu| format!("{path} mtu={mtu}"))
}

fn card(network: &NetworkSpec) -> String {
    let queues = network.queues.map(|queues| format!(" queues={queues}")).unwrap_or_default();
    let vhost = network.vhost.map(|vhost| format!(" vhost={vhost}")).unwrap_or_default();
    format!("{}{queues}{vhost}", network.nic)
}

fn machine(guest: &GuestSpec) -> String {
    if guest.count > 1 { format!("{} guests", guest.count) } else { "guest".into() }
}

#[cfg(test)]
mod tests {
    use crate::plan::Plan;

    #[test]
    fn every_layer_is_named_from_the_bottom_up() {
        for (keys, said) in [
            ("path = '/dev/sdb'", "/dev/sdb"),
            (
                "path = '/dev/sdb'\nsettings = { nr_requests = 8, scheduler = 'none' }",
                "/dev/sdb, scheduler=none nr_requests=8",
            ),
            ("file = { dir = '/srv' }", "raw file"),
            (
                "file = { dir = '/srv', format = 'qcow2', snapshot = 'external' }\nguest = {}",
                "qcow2 file + external snapshot > virtio-blk cache=none aio=io_uring > guest",
            ),
            (
                "lvm = { vg = 'vg0', kind = 'thin', snapshot = true }\n\
                 filesystem = { type = 'btrfs', mount_options = 'noatime', nodatacow = true }\nfile = {}\nloop = {}\n\
                 guest = { count = 3, filesystem = 'ext4', bus = 'nvme' }",
                "vg0 > thin LVM volume + snapshot > btrfs (noatime) nodatacow > raw file > loop direct_io=true > \
                 nvme cache=none aio=io_uring > 3 guests > ext4",
            ),
            ("network = { via = 'veth', mtu = 9000 }", "veth pair mtu=9000"),
            (
                "network = { via = 'bridge', queues = 2, vhost = true }\nguest = {}",
                "bridge > tap > virtio-net queues=2 vhost=true > guest",
            ),
        ] {
            let work = if keys.starts_with("network") { "net = { test = 'tcp' }" } else { "rw = 'read'" };
            let text = format!("[[target]]\nname = 'a'\n{keys}\n[[workload]]\n{work}");
            let plan = Plan::from_toml(&text).expect(keys);
            assert_eq!(plan.targets[0].description(), said);
        }
    }
}
