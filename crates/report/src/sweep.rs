//! Titles of suite tests, sentences about sweeps over block sizes or queue depths, UnixBench's index of file copies, and bandwidth by file and
//! record size.

use iotax_model::Bytes;
use iotax_model::suite::SuiteShape;
use iotax_model::units::human;

use super::figure::{self, change, or_unknown};
use iotax_analysis::suite::filecopy;
use iotax_analysis::suite::{OutstandingKnee, SuiteCell, SuiteTest, TargetSeries, Transition};
use iotax_model::Run;

/// Relative deviation of the measured times from the model (fixed cost plus bandwidth) above which the model is called a poor fit.
const POOR_FIT: f64 = 0.3;

/// Formats the title of a test: `random read by block size, queue depth 8 (randread)`.
pub(super) fn title(test: &SuiteTest<'_>) -> String {
    let Some(first) = test.workloads.first() else { return test.name.into() };
    let whole = figure::title(first);
    let what = match test.shape {
        SuiteShape::Sizes => whole.strip_prefix(&format!("{} ", first.bs)).unwrap_or(&whole).replacen(
            ", ",
            " by block size, ",
            1,
        ),
        SuiteShape::Depths => {
            whole.replacen(&format!(", queue depth {}", first.iodepth), " by outstanding I/Os", 1)
        }
        SuiteShape::Files => return format!("{}, MB/s by file and record size", test.name),
        SuiteShape::Each | SuiteShape::Methods | SuiteShape::Limits => whole,
    };
    format!("{what} ({})", test.name)
}

/// Column heads of [`indexes`].
pub(super) const INDEX_HEAD: [&str; 4] = ["", "baseline, KiB/s", "copied, KiB/s", "index"];

/// Formats UnixBench's index of the file copies: for each target a row per copy test, then the row of the geometric mean.
pub(super) fn indexes(run: &Run) -> Vec<(String, Vec<[String; 4]>)> {
    let rows = |found: filecopy::Index| {
        let copies = found.copies.iter().map(|copy| {
            let [baseline, copied, index] = [copy.baseline_kib_per_s, copy.kib_per_s, copy.index];
            [copy.title.to_owned(), format!("{baseline:.1}"), format!("{copied:.1}"), format!("{index:.1}")]
        });
        let all = found
            .index
            .map(|index| ["geometric mean".to_owned(), String::new(), String::new(), format!("{index:.1}")]);
        (found.target, copies.chain(all).collect())
    };
    filecopy::indexes(run).into_iter().map(rows).collect()
}

/// Returns the label of a point: its block size (`64k`) or its number of outstanding I/Os.
pub(super) fn point_label(shape: SuiteShape, point: &SuiteCell<'_>) -> String {
    match shape {
        SuiteShape::Depths => point.outstanding().to_string(),
        _ => point.block_size().to_string(),
    }
}

/// Divides the IOPS at half the block size by the IOPS at this size: near 2 if bandwidth is the limit, near 1 if the fixed cost per I/O is.
/// `None` if half the size was not measured, or if an IOPS figure is unknown.
pub(super) fn against_half(course: &TargetSeries<'_>, at: usize) -> Option<f64> {
    let point = course.points.get(at)?;
    let half = course.points.iter().find(|other| other.block_size().0 * 2 == point.block_size().0)?;
    Some(half.iops? / point.iops?)
}

/// Returns a sentence per target: the knee of a depth sweep, or the smallest block size at which bandwidth limits a size sweep.
pub(super) fn sentences(test: &SuiteTest<'_>) -> Vec<String> {
    let sentence = |course: &TargetSeries<'_>| {
        let knee = course.knee.as_ref().map(|knee| of_knee(course, knee));
        let landmark = knee.or_else(|| course.transition.as_ref().map(|found| of_transition(course, found)));
        landmark.map(|landmark| format!("{}: {landmark}", course.target))
    };
    test.series.iter().filter_map(sentence).collect()
}

/// Formats the range over single rounds: ` (7.1 to 8.4 in single rounds)`; empty if unknown.
fn spread(range: Option<(f64, f64)>, words: impl Fn(f64) -> String) -> String {
    range.map_or_else(String::new, |(low, high)| {
        format!(" ({} to {} in single rounds)", words(low), words(high))
    })
}

fn of_knee(course: &TargetSeries<'_>, knee: &OutstandingKnee) -> String {
    let outstanding = format!("{}{}", human::count(knee.outstanding), spread(knee.range, human::count));
    let (ceiling, least) = (human::count(knee.ceiling_iops), human::time(knee.least_latency_ns));
    let last = course.points.last().map_or(0, SuiteCell::outstanding);
    let Some((at, (iops, latency))) = knee.at.zip(knee.beyond) else {
        return format!(
            "no knee up to {last} outstanding I/Os: {ceiling} IOPS there, and more may give more."
        );
    };
    let point = &course.points[at];
    format!(
        "the knee is at {} outstanding I/Os: {} IOPS of at most {ceiling}. From there to {last} IOPS change by {} and latency by {}. \
         Fewer than {outstanding} could not reach the ceiling: {least} each at least.",
        point.outstanding(),
        or_unknown(point.iops, human::count),
        change(iops),
        change(latency)
    )
}

fn of_transition(course: &TargetSeries<'_>, found: &Transition) -> String {
    let size = |bytes: f64| human::bytes(whole(bytes));
    let own = human::time(found.fixed_ns);
    let poor = if found.misfit > POOR_FIT {
        format!(
            " These two parts miss single sizes by up to {:.0}%, so take it as a hint.",
            found.misfit * 100.0
        )
    } else {
        String::new()
    };
    let (Some(half), Some(rate)) = (found.size, found.bytes_per_s) else {
        return format!("size makes no difference up to {}: {own} each.{poor}", largest(course));
    };
    if half < 1.0 {
        return format!(
            "the bandwidth decides at every size: {}, and no cost of an I/O to be seen.{poor}",
            human::rate(rate)
        );
    }
    format!(
        "the bandwidth decides above {}{}: every I/O takes {own} and 1 s more for each {}. Below, smaller blocks give hardly more IOPS; \
         above, half the size gives twice as many.{poor}",
        size(half),
        spread(found.range, size),
        human::bytes(whole(rate))
    )
}

fn largest(course: &TargetSeries<'_>) -> Bytes {
    course.points.iter().map(SuiteCell::block_size).max().unwrap_or_default()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float's cast saturates, and sizes are positive"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Bandwidth of one target by file size and record size.
pub(super) struct Map {
    /// Record sizes, ascending.
    pub(super) records: Vec<Bytes>,
    /// File sizes, ascending.
    pub(super) files: Vec<Bytes>,
    /// Bytes per second by file size, then by record size; `None` if not measured.
    pub(super) bytes_per_s: Vec<Vec<Option<f64>>>,
}

impl Map {
    pub(crate) fn of(course: &TargetSeries<'_>) -> Self {
        let file = |point: &SuiteCell<'_>| point.workload.size.unwrap_or_default();
        let distinct = |of: &dyn Fn(&SuiteCell<'_>) -> Bytes| -> Vec<Bytes> {
            course.points.iter().map(of).collect::<std::collections::BTreeSet<_>>().into_iter().collect()
        };
        let (records, files) = (distinct(&|p| p.block_size()), distinct(&file));
        let value = |of_file: Bytes, record: Bytes| {
            course.points.iter().find(|p| file(p) == of_file && p.block_size() == record)?.bytes_per_s
        };
        let bytes_per_s = files.iter().map(|f| records.iter().map(|r| value(*f, *r)).collect()).collect();
        Self { records, files, bytes_per_s }
    }
}
