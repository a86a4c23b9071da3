//! Shows the latency by layer, and the CPU time by role (such as host kernel or QEMU).

use iotax_model::Workload;
use iotax_model::units::human;
use maud::{Markup, html};

use super::bars::{Stack, stacks};
use super::chart::{Chart, ChartId};
use crate::figure::{cpu_unit, or_unknown};
use iotax_analysis::cpu_breakdown::Role;
use iotax_analysis::latency_breakdown::View;
use iotax_analysis::{CpuByRole, Judgement, LatencyBreakdown, Metric};

/// Builds the charts of latency by layer and of CPU time by role, with their tables; empty if no guest was measured from inside and no CPU
/// time of servers, kernel threads or QEMU is known.
pub(super) fn section(judgement: &Judgement, here: ChartId<'_>, on: &Workload) -> Markup {
    let workload = here.workload;
    let mut insides: Vec<_> = judgement.on(workload, |cell| cell.latency.as_ref()).collect();
    if !insides.iter().any(|(_, inside)| inside.within()) {
        insides.clear();
    }
    let mut cpus: Vec<_> = judgement.on(workload, |cell| cell.cpu.as_ref()).collect();
    // The load generator and an unattributed rest alone are not worth a chart.
    let shown_roles = [Role::Peer, Role::StorageServer, Role::KernelThreads].into_iter().chain(Role::QEMU);
    if !cpus.iter().any(|(_, cpu)| shown_roles.clone().any(|role| cpu.of_role(role).is_some())) {
        cpus.clear();
    }
    html! {
        @if !insides.is_empty() || !cpus.is_empty() {
            div.pair { (latency(&insides).figure(here)) (cpu_time(&cpus, on).figure(here)) }
            @for (target, inside) in &insides {
                @for reason in &inside.not_separable { p.note { (target) ": not separable: " (reason) "." } }
            }
            details {
                summary { "Seen by each place, used by each role" }
                div.wide tabindex="0" { (views(&insides)) (roles(&cpus, on)) }
            }
        }
    }
}

fn latency(insides: &[(&str, &LatencyBreakdown)]) -> Chart {
    let bars: Vec<Stack> = insides
        .iter()
        .map(|(target, inside)| Stack { name: (*target).to_owned(), parts: inside.stretches.clone() })
        .collect();
    stacks(&bars, "arises", "io", "Where the mean latency arises", "from the device (left) to the program")
}

/// Selects the CPU time in nanoseconds by role, per I/O or for network streams per GiB.
fn by_role<'a>(cpu: &'a CpuByRole, on: &Workload) -> &'a [(Role, f64)] {
    if Metric::cpu(on) == Metric::CPU_PER_GIB { &cpu.per_gib } else { &cpu.roles }
}

fn cpu_time(cpus: &[(&str, &CpuByRole)], on: &Workload) -> Chart {
    let named = |(role, ns): &(Role, f64)| (role.name().to_owned(), *ns);
    let parts = |cpu: &CpuByRole| by_role(cpu, on).iter().map(named).collect();
    let bars: Vec<Stack> =
        cpus.iter().map(|(target, cpu)| Stack { name: (*target).to_owned(), parts: parts(cpu) }).collect();
    let per = cpu_unit(on).to_lowercase().replace("i/o", "io").replace(' ', "_");
    stacks(
        &bars,
        "cpu-by-role",
        &per,
        &format!("Host CPU time per {} by role", cpu_unit(on)),
        "medians over the rounds",
    )
}

fn views(insides: &[(&str, &LatencyBreakdown)]) -> Markup {
    let time = |value: Option<f64>| or_unknown(value, human::time);
    html! {
        @if !insides.is_empty() {
            table {
                thead {
                    tr {
                        th { "mean latency seen by" }
                        @for view in View::ALL { th { (view.name()) } }
                        th { "QEMU p50" br; "approximate" } th { "QEMU p99" br; "approximate" }
                    }
                }
                tbody {
                    @for (target, inside) in insides {
                        tr {
                            td { (target) }
                            @for view in View::ALL { td { (time(inside.latency_at(view))) } }
                            td { (time(inside.qemu_p50_ns)) }
                            td { (time(inside.qemu_p99_ns)) }
                        }
                    }
                }
            }
        }
    }
}

fn roles(cpus: &[(&str, &CpuByRole)], on: &Workload) -> Markup {
    let of_role = |cpu: &CpuByRole, role: Role| {
        by_role(cpu, on).iter().find(|(known, _)| *known == role).map(|(_, ns)| *ns)
    };
    let known: Vec<Role> = Role::ALL
        .into_iter()
        .filter(|role| cpus.iter().any(|(_, cpu)| of_role(cpu, *role).is_some()))
        .collect();
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let nested = cpus.iter().any(|(_, cpu)| cpu.nested.is_some_and(|share| share > 0.0));
    html! {
        @if !cpus.is_empty() {
            table {
                thead {
                    tr {
                        th { "host CPU time per " (cpu_unit(on)) }
                        @for role in &known { th { (role.name()) } }
                        th { "steal" br; "in the guest" }
                        @if nested { th { "own guests" br; "in the guest" } }
                    }
                }
                tbody {
                    @for (target, cpu) in cpus {
                        tr {
                            td { (target) }
                            @for role in &known { td { (or_unknown(of_role(cpu, *role), human::time)) } }
                            td { (or_unknown(cpu.steal, percent)) }
                            @if nested { td { (or_unknown(cpu.nested, percent)) } }
                        }
                    }
                }
            }
        }
    }
}
