//! Shows the result of a measurement on several hosts (a fleet).

use iotax_analysis::fleet::{FleetAnswer, HostCell, SharedCell, SharedGroup};
use iotax_model::RunState;
use iotax_model::record::FleetMode;
use iotax_model::units::human;

use crate::figure::counted;

use super::{Field, Grid, Page, Part, figure, words};

/// Text for an unknown figure.
const UNKNOWN: &str = "-";

/// Builds the page of a fleet: the members that ended early, then the results for each workload and target. These are the outliers and a table of all
/// hosts, or for shared storage the sums over the members.
#[must_use]
pub fn fleet(fleet: &FleetAnswer) -> Page {
    let mut page = Page::default();
    let count = fleet.members.len();
    let (noun, how) = (
        if count == 1 { "member" } else { "members" },
        match fleet.mode {
            FleetMode::Each => "each its own storage",
            FleetMode::Shared => "one storage that they share",
        },
    );
    page.add(Part::Sentence(format!("Fleet {}, {}: {count} {noun}, {how}.", fleet.id, fleet.name)));
    page.add_lines(ended_early(fleet));
    for cell in &fleet.hosts {
        page.add(Part::Head(format!("{} on {}", cell.workload, cell.target)));
        page.add(Part::Sentence(outliers(cell)));
        page.add(Part::Table(hosts(cell)));
    }
    for cell in &fleet.shared {
        page.add(Part::Head(format!("{} on {}", cell.workload, cell.target)));
        for group in &cell.groups {
            page.add(Part::Sentence(together(group)));
        }
        if cell.groups.is_empty() {
            page.add(Part::Sentence("No round counts.".into()));
        }
        if let Some(group) = cell.groups.first() {
            page.add(Part::Table(shares(group)));
        }
        page.add_list("Withheld", withheld(cell));
    }
    page.add(Part::Sentence(method(fleet)));
    page
}

/// Lists the hosts whose run ended early, with the reason.
fn ended_early(fleet: &FleetAnswer) -> Vec<String> {
    let early = fleet.members.iter().filter(|member| member.state != RunState::Complete);
    early
        .map(|member| {
            let reason = member.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
            format!("{} is {} after {} measurements{reason}", member.name, member.state, member.measured)
        })
        .collect()
}

fn outliers(cell: &HostCell) -> String {
    let found: Vec<String> = cell
        .hosts
        .iter()
        .filter(|host| host.is_outlier)
        .map(|host| format!("{} ({})", host.member, against(host.ratio)))
        .collect();
    let median = human::time(cell.median_ns);
    if !cell.is_judged {
        return format!(
            "The median host takes {median} per I/O. With fewer than 5 hosts none is called an outlier."
        );
    }
    match found.as_slice() {
        [] => format!("No host is unlike the others; the median host takes {median} per I/O."),
        [one] => format!("One host is unlike the others, whose median takes {median} per I/O: {one}."),
        some => format!(
            "{} hosts are unlike the others, whose median takes {median} per I/O: {}.",
            some.len(),
            human::listed(some)
        ),
    }
}

fn against(ratio: f64) -> String {
    format!("{:+.1}%", (ratio - 1.0) * 100.0)
}

fn known(value: Option<f64>, say: impl Fn(f64) -> String) -> Field {
    figure(value.map_or_else(|| UNKNOWN.into(), say))
}

fn hosts(cell: &HostCell) -> Grid {
    let mut grid = Grid::new(&["host", "rounds", "IOPS", "mean", "95% interval", "p99", "vs median", ""]);
    for host in &cell.hosts {
        let interval = host
            .interval
            .map(|interval| format!("{} to {}", human::time(interval.low), human::time(interval.high)));
        grid.rows.push(vec![
            words(&host.member),
            figure(host.rounds.to_string()),
            known(host.iops, human::count),
            figure(human::time(host.mean_ns)),
            figure(interval.unwrap_or_else(|| UNKNOWN.into())),
            known(host.p99_ns, human::time),
            figure(against(host.ratio)),
            words(if host.is_outlier { "outlier" } else { "" }),
        ]);
    }
    grid
}

/// Describes the members that measured shared storage together: total IOPS and bandwidth, latency, fairness, and the spread of start times.
fn together(group: &SharedGroup) -> String {
    let interval = group.iops_interval.map_or(String::new(), |interval| {
        format!(" (95% interval {} to {})", human::count(interval.low), human::count(interval.high))
    });
    let percentile = |q| group.percentile(q).map_or_else(|| UNKNOWN.into(), human::time);
    let fairness =
        group.fairness.map_or(String::new(), |fairness| format!("; fairness {:.3} of 1", fairness.mean));
    let skew = group.skew;
    format!(
        "{}, {}: {} IOPS together{interval}, {}; p50 {}, p99 {} of all {} I/Os{fairness}. They began within {} (p99; at \
         most {}), give or take {}.",
        counted(group.shares.len() as u64, "member"),
        counted(group.rounds as u64, "round"),
        human::count(group.iops),
        human::rate(group.bytes_per_s),
        percentile(0.5),
        percentile(0.99),
        group.ios,
        human::time(skew.p99_ns as f64),
        human::time(skew.longest_ns as f64),
        human::time(skew.uncertainty_ns as f64)
    )
}

fn shares(group: &SharedGroup) -> Grid {
    let mut grid = Grid::new(&["member", "IOPS", "share", ""]);
    for (member, share) in &group.shares {
        let iops = figure(human::count(share * group.iops));
        grid.rows.push(vec![words(member), iops, figure(format!("{:.1}%", share * 100.0)), words("")]);
    }
    grid
}

fn withheld(cell: &SharedCell) -> Vec<String> {
    cell.withheld.iter().map(|round| format!("round {}: {}", round.round, round.reason)).collect()
}

fn method(fleet: &FleetAnswer) -> String {
    match fleet.mode {
        FleetMode::Each => "An outlier is more than 3.5 scaled median absolute deviations from the median host (Iglewicz and Hoaglin), beyond \
                            the plan's margin, and its 95% interval over the rounds leaves the median out."
            .into(),
        FleetMode::Shared => "Sums and percentiles are of the whole intervals in the window that all members share; percentiles are of all \
                              I/Os together, by merged histograms."
            .into(),
    }
}
