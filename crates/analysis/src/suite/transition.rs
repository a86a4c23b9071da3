//! The block size at which bandwidth becomes the limit.
//!
//! An I/O of s bytes takes a fixed time plus a time per byte, t = a + s / b: a target limited by I/Os has the same IOPS at any size, a
//! target limited by bandwidth has twice the IOPS at half the size. Both parts are equal at s = a b, where half of the bandwidth is reached
//! (R. W. Hockney, "(r∞, n1/2, s1/2) measurements on the 2-CPU CRAY X-MP", Parallel Computing 2, 1985: the half-performance length). The
//! time t is that between two completions, whatever the number of outstanding I/Os.

use super::{SuiteCell, over_rounds};

/// The block size at which bandwidth becomes the limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transition {
    /// Bytes at which an I/O's fixed time equals its transfer time; 0 if bandwidth is the limit at every size, absent if it is the limit
    /// at none. Median over the rounds.
    pub size: Option<f64>,
    /// The smallest and the largest `size` of single rounds, in bytes; absent for fewer than two rounds with figures at every size.
    pub range: Option<(f64, f64)>,
    /// Fixed time per I/O: the part of the time between two completions that does not depend on the block size, in nanoseconds.
    pub fixed_ns: f64,
    /// The bandwidth that large blocks approach, in bytes per second; absent if the block size makes no difference.
    pub bytes_per_s: Option<f64>,
    /// Largest relative deviation of the model from a measured time: 0.05 for 5%.
    pub misfit: f64,
}

/// Minimum number of sizes for a meaningful fit.
const FEWEST: usize = 4;

/// Fixed nanoseconds per I/O, and nanoseconds per byte.
type Parts = (f64, f64);

/// Finds the transition from points of different block sizes; `None` if a figure is unknown, for fewer than four points, or if all sizes
/// are equal.
pub fn of(points: &[SuiteCell<'_>]) -> Option<Transition> {
    let sizes: Vec<f64> = points.iter().map(|p| p.block_size().0 as f64).collect();
    let times: Option<Vec<f64>> = points.iter().map(|p| p.iops.map(|iops| 1e9 / iops)).collect();
    let times = times.filter(|times| times.len() >= FEWEST)?;
    let (fixed_ns, per_byte) = fit(&sizes, &times)?;
    let off = sizes.iter().zip(&times).map(|(s, t)| ((fixed_ns + per_byte * s) / t - 1.0).abs());
    let half = |(fixed, per_byte): Parts| (per_byte > 0.0).then(|| fixed / per_byte);
    let each = over_rounds(points, |pairs| {
        let times: Vec<f64> = pairs.iter().map(|(iops, _)| 1e9 / iops).collect();
        fit(&sizes, &times).and_then(half)
    });
    Some(Transition {
        size: half((fixed_ns, per_byte)).map(|size| each.map_or(size, |each| each.median)),
        range: each.map(|each| each.range),
        fixed_ns,
        bytes_per_s: (per_byte > 0.0).then(|| 1e9 / per_byte),
        misfit: off.fold(0.0, f64::max),
    })
}

/// Fits fixed time and time per byte by least squares of relative errors, which give all sizes the same weight. Neither result is negative.
/// `None` if all sizes are equal.
fn fit(sizes: &[f64], times: &[f64]) -> Option<Parts> {
    let (mut uu, mut uv, mut vv, mut u, mut v) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (size, time) in sizes.iter().zip(times) {
        let (one, per_size) = (1.0 / time, size / time);
        uu += one * one;
        uv += one * per_size;
        vv += per_size * per_size;
        u += one;
        v += per_size;
    }
    let determinant = uu * vv - uv * uv;
    if !determinant.is_finite() || determinant <= 0.0 {
        return None;
    }
    let (fixed, per_byte) = ((u * vv - v * uv) / determinant, (v * uu - u * uv) / determinant);
    Some(match (fixed < 0.0, per_byte < 0.0) {
        (true, _) => (0.0, v / vv),
        (false, true) => (u / uu, 0.0),
        (false, false) => (fixed, per_byte),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [f64; 6] = [512.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0];

    fn parts(time: impl Fn(f64) -> f64) -> Parts {
        fit(&SIZES, &SIZES.map(time)).expect("sizes differ")
    }

    #[test]
    fn both_parts_are_found_again() {
        let (fixed, per_byte) = parts(|size| 20_000.0 + size * 0.5);
        assert!((fixed - 20_000.0).abs() < 1e-3 && (per_byte - 0.5).abs() < 1e-9, "{fixed} {per_byte}");
    }

    #[test]
    fn one_part_alone_leaves_none_for_the_other() {
        let (fixed, per_byte) = parts(|_| 20_000.0);
        assert!((fixed - 20_000.0).abs() < 1e-3 && per_byte < 1e-9, "{fixed} {per_byte}");
        let (fixed, per_byte) = parts(|size| size * 0.5);
        assert!(fixed < 1e-3 && (per_byte - 0.5).abs() < 1e-9, "{fixed} {per_byte}");
        // Larger rounds that take less time each: nothing is negative.
        let (fixed, per_byte) = parts(|size| 1e5 / size.sqrt());
        assert!(fixed > 0.0 && per_byte.abs() < f64::EPSILON, "{fixed} {per_byte}");
        assert_eq!(fit(&[512.0], &[1.0]), None);
    }
}
