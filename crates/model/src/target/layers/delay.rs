//! A delay before each I/O of a block device: the kernel's dm-delay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments, keys,
};
use crate::units::Nanos;

/// The unit of dm-delay, in nanoseconds.
const MILLISECOND: u64 = 1_000_000;
/// Maximum delay: half the time (120 s by default) after which the kernel reports a waiting task as hung.
const MOST: Nanos = Nanos::from_secs(60);

/// A dm-delay device, which simulates a slow or distant disk: I/O waits for whole milliseconds before it is passed on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DelaySpec {
    /// Delay of each read [default: none]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Nanos>,
    /// Delay of each write [default: none]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Nanos>,
    /// Delay of each flush [default: none]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush: Option<Nanos>,
}

impl DelaySpec {
    /// Returns the delays of reads, writes and flushes in milliseconds; 0 for none.
    #[must_use]
    pub fn milliseconds(&self) -> [u64; 3] {
        [self.read, self.write, self.flush].map(|delay| delay.unwrap_or_default().0 / MILLISECOND)
    }
}

impl LayerType for DelaySpec {
    fn key(&self) -> &'static str {
        "delay"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Block]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Block
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn is_transparent(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), String> {
        let given = [("read", self.read), ("write", self.write), ("flush", self.flush)];
        for (key, delay) in given.into_iter().filter_map(|(key, delay)| Some((key, delay?))) {
            if !(MILLISECOND..=MOST.0).contains(&delay.0) || delay.0 % MILLISECOND != 0 {
                return Err(format!("delay: {key} = {delay}: accepted: whole milliseconds, 1ms to {MOST}"));
            }
        }
        if given.iter().all(|(_, delay)| delay.is_none()) {
            return Err("delay: needs read = \"2ms\", write or flush".into());
        }
        Ok(())
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("delay opens a mapping of the kernel's".into())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("delay", "dm-delay", self, &[])]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("delay{}", keys(self, None, &[]))]
    }
}

impl FromLine for DelaySpec {
    const FORMS: &[&str] = &["delay"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "delay").then(|| segments.take().spec([]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_that_the_kernel_does_not_take_are_refused() {
        for (keys, words) in [
            ("", "needs read = \"2ms\""),
            ("read = '500us'", "read = 500us: accepted: whole milliseconds, 1ms to 1m"),
            ("flush = '1500us'", "flush = 1500us: accepted"),
            ("write = '61s'", "write = 61s: accepted"),
            ("write = '0s'", "write = 0ns: accepted"),
        ] {
            let refusal = toml::from_str::<DelaySpec>(keys).expect(keys).check().expect_err(keys);
            assert!(refusal.contains(words), "{keys}: {refusal}");
        }
        let spec: DelaySpec = toml::from_str("read = '2ms'\nflush = '1s'").expect("known");
        assert_eq!((spec.check(), spec.milliseconds()), (Ok(()), [2, 0, 1000]));
    }
}
