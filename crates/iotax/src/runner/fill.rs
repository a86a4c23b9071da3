//! Fills the targets with data before they are measured.

use iotax_model::schedule;
use iotax_model::units::Bytes;

use super::Runner;

/// Minimum length in bytes of a piece, except for the first ones.
const PIECE: u64 = 32 << 20;
/// Number of pieces into which the longest target is divided, unless they would get shorter than `PIECE`.
const PIECES: u64 = 64;
const MIB: u64 = 1 << 20;

impl Runner<'_> {
    /// Fills all targets side by side: a piece of each in turn, in random order. Regions of a disk differ in speed by 20% and more. Files
    /// written one after another would lie in different regions, and a comparison would show the regions instead of the layers. The first
    /// pieces are short, from 1 MiB on: a file grows contiguously while there is room, so the files must begin close together.
    pub(super) fn fill_all(&mut self) -> anyhow::Result<()> {
        let plan = self.order.plan;
        let is_shared = |group: usize| group < plan.targets.len() && plan.storage_of(group) != group;
        let filled = self.groups.iter().flatten().filter_map(|target| target.filled(plan));
        let longest = filled.map(|(_, bytes)| bytes.0).max().unwrap_or_default();
        let piece = (longest / PIECES).max(PIECE).next_multiple_of(MIB);
        let own = (0..self.groups.len()).filter(|group| !is_shared(*group));
        let mut open: Vec<(usize, usize, Bytes)> = own
            .flat_map(|group| (0..self.groups[group].len()).map(move |member| (group, member, Bytes(0))))
            .collect();
        for turn in 0.. {
            if open.is_empty() {
                break;
            }
            schedule::shuffle(&mut open, self.order.seed, turn);
            let piece = Bytes(piece.min(MIB << turn.min(20)));
            for (group, member, done) in std::mem::take(&mut open) {
                if self.lost.contains(&group) {
                    continue;
                }
                match self.fill_piece(group, member, done, piece) {
                    Ok(Some(done)) => open.push((group, member, done)),
                    Ok(None) => {}
                    Err(error) => self.or_lose(group, Err(error))?,
                }
            }
        }
        for group in (0..plan.targets.len()).filter(|group| is_shared(*group)) {
            let stamped = self.groups[plan.storage_of(group)].first().and_then(|first| first.stamped);
            self.groups[group]
                .iter_mut()
                .for_each(|target| (target.is_filled, target.stamped) = (true, stamped));
        }
        Ok(())
    }

    /// Fills the whole storage of one member of a group (one instance of a target) once.
    pub(super) fn fill(&mut self, group: usize, member: usize) -> anyhow::Result<()> {
        self.fill_piece(group, member, Bytes(0), Bytes(u64::MAX)).map(drop)
    }

    /// Fills up to `most` bytes of one member of a group (one instance of a target), after the first `done` bytes. Returns the number of
    /// bytes filled so far; `None` once all are filled. Each member gets different data, because deduplicating storage would keep equal
    /// data only once.
    fn fill_piece(
        &mut self,
        group: usize,
        member: usize,
        done: Bytes,
        most: Bytes,
    ) -> anyhow::Result<Option<Bytes>> {
        let before: usize = self.groups[..group].iter().map(Vec::len).sum();
        let seed = self.order.seed.wrapping_add((before + member) as u64);
        let (plan, target) = (self.order.plan, &mut self.groups[group][member]);
        target.fill(&mut self.local, plan, seed, (done, most), self.context.progress)
    }
}
