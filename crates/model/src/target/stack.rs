//! Stacks: layers from the bottom up, each built on the interface that the layer below offers.

use super::fitting::{completing, fit, suggest, unknown};
use super::layers::word;
use super::layers::{Below, BottomLocation, LayerInterface, LayerSpec, LayerType, PlannedLayer, Segments};
use super::{CacheMode, DirectoryProtocol, GuestFs, GuestSpec, NetworkSpec};

/// The layers of a target, from the bottom up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stack {
    layers: Vec<PlannedLayer>,
}

impl<L: Into<PlannedLayer>> From<L> for Stack {
    fn from(layer: L) -> Self {
        Self::default().with(layer)
    }
}

impl Stack {
    /// Returns the stack with another layer on top.
    #[must_use]
    pub fn with(mut self, layer: impl Into<PlannedLayer>) -> Self {
        self.layers.push(layer.into());
        self
    }

    /// Returns the stack without its layers of kind `L`.
    #[must_use]
    pub fn without<L: LayerSpec>(mut self) -> Self {
        self.layers.retain(|layer| L::of(layer).is_none());
        self
    }

    /// Returns the layers, from the bottom up.
    #[must_use]
    pub fn layers(&self) -> &[PlannedLayer] {
        &self.layers
    }

    /// Returns the layers from the bottom up, as a mutable slice.
    pub fn layers_mut(&mut self) -> &mut [PlannedLayer] {
        &mut self.layers
    }

    /// Returns the topmost layer of kind `L`; `None` if the stack has none.
    #[must_use]
    pub fn find<L: LayerSpec>(&self) -> Option<&L> {
        self.layers.iter().rev().find_map(L::of)
    }

    /// Returns the topmost layer of kind `L` as [`Self::find`] does, but as a mutable reference.
    pub fn find_mut<L: LayerSpec>(&mut self) -> Option<&mut L> {
        self.layers.iter_mut().rev().find_map(L::of_mut)
    }

    /// Returns whether the stack has a layer of kind `L`.
    #[must_use]
    pub fn has<L: LayerSpec>(&self) -> bool {
        self.find::<L>().is_some()
    }

    /// Returns the location of the bottom layer on this machine; `None` if the layer has none, as for networks.
    #[must_use]
    pub fn location(&self) -> Option<BottomLocation<'_>> {
        self.layers.first()?.kind().location()
    }

    /// Returns the topmost layer, except I/O limits, which have no storage of their own; `None` for an empty stack.
    pub(crate) fn top(&self) -> Option<&PlannedLayer> {
        self.layers.iter().rev().find(|layer| layer.kind().offers() != LayerInterface::Limited)
    }

    /// Returns the interface that the stack offers to a workload or to another layer on top; [`LayerInterface::Nothing`] for an empty
    /// stack.
    #[must_use]
    pub fn offers(&self) -> LayerInterface {
        match self.top() {
            None => LayerInterface::Nothing,
            Some(top) => match top.kind().offers() {
                LayerInterface::GuestDisk if self.shared_directory().is_some() => LayerInterface::FileInGuest,
                offered => offered,
            },
        }
    }

    /// Returns the protocol by which a guest mounts a directory of the host; `None` if it mounts none.
    #[must_use]
    pub fn shared_directory(&self) -> Option<DirectoryProtocol> {
        self.layers.iter().rev().find_map(|layer| layer.kind().shared_directory())
    }

    /// Returns whether a layer of the stack uses the host's page cache, so that even direct I/O on top may be served from memory.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        self.layers.iter().any(|layer| layer.kind().cache().is_some_and(|mode| !mode.direct()))
    }

    /// Returns the topmost layer whose cache mode ignores flushes, with that mode; `None` if there is none. A layer above a network client
    /// that sends flushes anyway does not count.
    #[must_use]
    pub fn ignores_flushes(&self) -> Option<(&PlannedLayer, CacheMode)> {
        let ignoring = |(place, layer)| {
            let layer: &PlannedLayer = layer;
            let mode = layer.kind().cache().filter(|mode| mode.no_flush())?;
            let is_sent = self.layers[..place].iter().any(|below| below.kind().client_flushes());
            (!is_sent).then_some((layer, mode))
        };
        self.layers.iter().enumerate().rev().find_map(ignoring)
    }

    /// Returns the setting by which a layer of the stack makes reads fail with EIO, as `error_rate = 1%`; `None` if no layer does.
    #[must_use]
    pub fn failing_reads(&self) -> Option<String> {
        self.layers.iter().find_map(|layer| layer.kind().failing_reads())
    }

    /// Returns whether a layer of the stack reads or writes more data below than is requested of it.
    #[must_use]
    pub fn amplifies(&self) -> bool {
        self.layers.iter().any(|layer| layer.kind().amplifies())
    }

    /// Rejects a stack that cannot be built or on which no workload can run. If a layer is missing, the error suggests one.
    pub fn check(&self) -> Result<(), String> {
        let mut below: Option<&PlannedLayer> = None;
        for (place, layer) in self.layers.iter().enumerate() {
            fit(layer, below)?;
            layer.kind().check()?;
            layer.kind().check_on(&self.layers[..place])?;
            layer.kind().check_under(&self.layers[place + 1..])?;
            below = Some(layer);
        }
        let Some(top) = below else {
            return Err(
                "needs path = \"...\", file = { dir = \"...\" }, device = \"...\", lvm = { vg = \"...\" }, \
                 network = { via = \"...\" } or stack = \"...\""
                    .into(),
            );
        };
        let offered = self.offers();
        if !offered.is_measurable() {
            let (key, offered) = (top.kind().key(), offered.words());
            let fitting = completing(self.offers());
            let more = match fitting.first() {
                None => String::new(),
                Some((_, line)) => {
                    let keys: Vec<&str> = fitting.iter().map(|(key, _)| *key).collect();
                    format!("; add {} (in a line: > {line})", keys.join(" or "))
                }
            };
            return Err(format!("ends with {key}, {offered}, on which nothing can be measured{more}"));
        }
        Ok(())
    }

    /// Returns the remedy for a stack that offers no filesystem for file workloads; `None` if the stack offers one.
    #[must_use]
    pub fn wants_filesystem(&self) -> Option<&'static str> {
        if let Some(network) = self.find::<NetworkSpec>() {
            return network.wants_filesystem();
        }
        let has_directory = self.offers() == LayerInterface::FileInGuest;
        self.top().filter(|_| !has_directory)?.kind().wants_filesystem()
    }

    /// Adds an ext4 to a guest with a raw disk, so that workloads can make files there. Returns whether it did.
    pub fn add_guest_filesystem(&mut self) -> bool {
        let has_directory = self.shared_directory().is_some();
        let guest = self.find_mut::<GuestSpec>().filter(|guest| guest.filesystem.is_none() && !has_directory);
        guest.map(|guest| guest.filesystem = Some(GuestFs::Ext4)).is_some()
    }

    /// Formats the stack on one line from the bottom up: `/srv > raw file > virtio-blk cache=none aio=io_uring > guest`. [`Self::parse`] reads this
    /// form.
    #[must_use]
    pub fn line(&self) -> String {
        let below = std::iter::once(None).chain(self.layers.iter().map(Some));
        let segments = self.layers.iter().zip(below).flat_map(|(layer, below)| layer.kind().segments(below));
        segments.collect::<Vec<_>>().join(" > ")
    }

    /// Returns the stack with its bottom layer in a directory, where it names none of its own.
    ///
    /// # Errors
    /// The bottom layer is in no directory.
    pub fn in_directory(&self, dir: &str) -> Result<Self, String> {
        Self::parse(&format!("{} > {}", word(dir), self.line()))
    }

    /// Parses a stack from one line, as formatted by [`Self::line`].
    ///
    /// # Errors
    /// The line is malformed, a segment is no layer, or a layer does not accept its settings. [`Self::check`] checks whether the layers fit
    /// on one another.
    pub fn parse(line: &str) -> Result<Self, String> {
        let mut segments = Segments::of(line)?;
        let mut stack = Self::default();
        let mut place: Option<String> = None;
        while segments.len() > 0 {
            let text = segments.shown();
            let mut again = segments.clone();
            let below = Below { place: place.as_deref(), layer: stack.layers.last() };
            let Some(layer) = PlannedLayer::read(&mut segments, &below) else {
                // A directory or volume group that the next layer is created in.
                if stack.layers.is_empty() && place.is_none() {
                    place = segments.take_location();
                }
                if stack.layers.is_empty() && place.is_some() && segments.shown() != text {
                    continue;
                }
                return Err(unknown(&text));
            };
            let layer = layer?;
            // A layer that is the same without the place has no use for it.
            if let Some(place) = place.take()
                && PlannedLayer::read(&mut again, &Below { place: None, layer: None })
                    == Some(Ok(layer.clone()))
            {
                return Err(format!("{place:?} > {text}: accepted: {}", suggest(&layer, &place, &text)));
            }
            stack.layers.push(layer);
        }
        Ok(stack)
    }
}

#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;
