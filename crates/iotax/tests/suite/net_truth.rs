//! Paths whose faults are known: what is measured must be what they are.
use crate::net_lab::NetLab;

#[test]
fn first() {
    let Some(mut lab) = NetLab::boot() else { return };
    eprintln!("{}", lab.guest.sh("near ping -c 5 -i 0.2 10.9.0.2"));
    eprintln!("{}", lab.guest.sh("ip netns exec near tc qdisc add dev near0 root netem delay 5ms; near ping -c 10 -i 0.2 10.9.0.2"));
    eprintln!("{}", lab.guest.sh("tc -n near -s qdisc show dev near0; dmesg | tail -3; ls -la /lab; alias"));
}
