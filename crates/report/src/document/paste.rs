//! Builds a text to paste into a ticket or a mail: the answer, with the machine and the targets' stacks.

use iotax_analysis::Judgement;
use iotax_model::Run;
use iotax_model::units::human;

use super::{Page, Part};
use crate::answer::MORE;

/// Builds a page for pasting: the machine, the stack of each target if there are several, and the answer of the run.
#[must_use]
pub fn paste(run: &Run, judgement: &Judgement) -> Page {
    let mut page = Page::default();
    page.add(Part::Head(machine(run)));
    if run.plan.targets.len() > 1 {
        let stack = |target: &iotax_model::TargetSpec| format!("{}: {}", target.name, target.description());
        page.add_lines(run.plan.targets.iter().map(stack).collect());
    }
    for part in super::answer(run, judgement).parts {
        add(&mut page, run, part);
    }
    page
}

/// Adds a part of the answer. Joins consecutive groups of lines, so that no blank line separates them, and leaves out the hint to `iotax
/// report --detail`, which needs the saved run; the number of remarks that only that command shows stays.
fn add(page: &mut Page, run: &Run, part: Part) {
    let Part::Lines(mut lines) = part else { return page.add(part) };
    let detail = run.command("report", "--detail");
    let hint = format!("{MORE}{detail}");
    for line in &mut lines {
        if let Some(count) = line.strip_suffix(&hint) {
            *line = format!("{count} more in the whole report");
        }
    }
    lines.retain(|line| !line.ends_with(&detail));
    match page.parts.last_mut() {
        Some(Part::Lines(before)) => before.extend(lines),
        _ => page.add_lines(lines),
    }
}

/// Describes the machine:
/// `iotax 0.1.0 on Debian GNU/Linux 12, Linux 6.1.0, 2 x CPU MODEL, 25.2 GB of memory, under KVM; guests: QEMU 7.2 (tcg).`
fn machine(run: &Run) -> String {
    let e = &run.environment;
    let cpus = e.cpu_model.as_ref().map(|model| match e.cpus {
        Some(cpus) => format!("{cpus} x {model}"),
        None => model.clone(),
    });
    let facts = [
        e.os.clone(),
        e.kernel.as_ref().map(|kernel| format!("Linux {kernel}")),
        cpus,
        e.memory_bytes.map(|bytes| format!("{} of memory", human::bytes(bytes))),
        e.hypervisor.as_ref().map(|below| format!("under {below}")),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    if run.source.is_imported() && facts.is_empty() {
        return "Imported; the machine is not known.".into();
    }
    let has_guest = run.plan.targets.iter().any(|target| target.guest().is_some());
    let qemu = e.qemu.as_ref().filter(|_| has_guest);
    let accel = e.accel.as_ref().map(|accel| format!(" ({accel})")).unwrap_or_default();
    let guests = qemu.map(|qemu| format!("; guests: QEMU {qemu}{accel}")).unwrap_or_default();
    format!("iotax {} on {}{guests}.", e.tool.as_deref().unwrap_or_default(), facts.join(", "))
}
