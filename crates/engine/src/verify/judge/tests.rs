use super::*;
use crate::verify::stamp::write_stamps;
use iotax_load::random::{Purpose, SplitMix64};
use iotax_load::request::{Io, IoKind};
use iotax_model::workload::Verify;
use proptest::prelude::*;

const BLOCK: usize = 4096;

const fn mark(generation: u64) -> Mark {
    Mark { run: 71, generation }
}

/// Returns a stamped write of random bytes.
fn write(offset: u64, length: usize, mark: Mark) -> Vec<u8> {
    let mut random = SplitMix64::new(mark.generation, Purpose::Payload, offset);
    let mut buffer: Vec<u8> = (0..length / 8).flat_map(|_| random.next().to_ne_bytes()).collect();
    let io = Io { direction: IoKind::Write, offset, length: u32::try_from(length).expect("short") };
    write_stamps(&mut buffer, &io, mark, Verify::Xxh3);
    buffer
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn what_was_expected_is_fine_and_what_was_not_is_named() {
    let offset = 5 * BLOCK as u64;
    let (old, older, new) =
        (write(offset, BLOCK, mark(3)), write(offset, BLOCK, mark(2)), write(offset, BLOCK, mark(8)));
    let fill = write(offset, BLOCK, Mark { run: 5, generation: 0 });
    let elsewhere = write(0, BLOCK, mark(8));
    let (zeros, garbage) = (vec![0; BLOCK], vec![0x5A; BLOCK]);
    let half = |one: &[u8], other: &[u8]| joined(&[&one[..BLOCK / 2], &other[BLOCK / 2..]]);
    let flipped = |mut block: Vec<u8>, byte: usize| {
        block[byte] ^= 1;
        block
    };
    let this = Expected::This(mark(8));
    for (block, found) in [
        (new.clone(), Ok(())),
        (old.clone(), Err(FaultKind::LostWrite)),
        (fill.clone(), Err(FaultKind::LostWrite)),
        (zeros.clone(), Err(FaultKind::LostWrite)),
        (garbage.clone(), Err(FaultKind::Foreign)),
        (half(&garbage, &zeros), Err(FaultKind::Foreign)),
        (elsewhere.clone(), Err(FaultKind::Misdirected)),
        (half(&new, &elsewhere), Err(FaultKind::Misdirected)),
        (half(&new, &old), Err(FaultKind::Torn)),
        (half(&old, &new), Err(FaultKind::Torn)),
        (half(&fill, &new), Err(FaultKind::Torn)),
        (half(&new, &zeros), Err(FaultKind::Torn)),
        // The write is lost and a part of an earlier one too.
        (half(&old, &older), Err(FaultKind::Torn)),
        (half(&new, &garbage), Err(FaultKind::Corrupt)),
        (flipped(new.clone(), 0), Err(FaultKind::Corrupt)),
        (flipped(new.clone(), 8), Err(FaultKind::Corrupt)),
        (flipped(new.clone(), 700), Err(FaultKind::Corrupt)),
        (flipped(old.clone(), 4095), Err(FaultKind::Corrupt)),
    ] {
        assert_eq!(judge(&block, offset, this), found);
    }

    // After a crash a write that was in flight may be present, even in part; an acknowledged write must not be missing.
    let since = Expected::Since(mark(3));
    for (block, found) in [
        (new.clone(), Ok(())),
        (old.clone(), Ok(())),
        (half(&old, &new), Ok(())),
        (older.clone(), Err(FaultKind::LostWrite)),
        (half(&new, &older), Err(FaultKind::Torn)),
        (zeros.clone(), Err(FaultKind::LostWrite)),
    ] {
        assert_eq!(judge(&block, offset, since), found);
    }

    for (block, found) in [
        (new.clone(), Ok(())),
        (fill, Ok(())),
        (zeros.clone(), Err(FaultKind::Foreign)),
        (garbage.clone(), Err(FaultKind::Foreign)),
        (elsewhere, Err(FaultKind::Misdirected)),
        (half(&new, &old), Err(FaultKind::Torn)),
        (half(&new, &zeros), Err(FaultKind::Torn)),
        (half(&zeros, &new), Err(FaultKind::Torn)),
        (half(&garbage, &new), Err(FaultKind::Corrupt)),
        (flipped(new, 17), Err(FaultKind::Corrupt)),
    ] {
        assert_eq!(judge(&block, offset, Expected::Anything), found);
    }
}

#[test]
fn a_long_read_may_hold_several_writes_and_what_none_wrote() {
    let one = write(0, BLOCK, mark(1));
    let two = write(4096, BLOCK, mark(9));
    let wide = write(0, 2 * BLOCK, mark(4));
    let anything = |block: &[u8]| judge(block, 0, Expected::Anything);
    assert_eq!(anything(&joined(&[&one, &two])), Ok(()));
    // A short write over a part of a long one is not a tear.
    assert_eq!(anything(&joined(&[&wide[..BLOCK], &two])), Ok(()));
    assert_eq!(anything(&joined(&[&one, &[0; BLOCK]])), Err(FaultKind::Foreign));
    assert_eq!(anything(&joined(&[&wide[..BLOCK], &[0; BLOCK]])), Err(FaultKind::Torn));
}

/// A way to damage a block.
#[derive(Debug, Clone)]
enum Damage {
    FlipBit(usize),
    Restore,
    Erase,
    CopyFrom(u64),
    /// Copies this many sectors of the older write over the front, or else over the back.
    Tear(usize, bool),
    Overwrite(Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (0..BLOCK * 8).prop_map(Damage::FlipBit),
        Just(Damage::Restore),
        Just(Damage::Erase),
        (1_u64..1000).prop_map(Damage::CopyFrom),
        (1..BLOCK / SECTOR, any::<bool>()).prop_map(|(sectors, front)| Damage::Tear(sectors, front)),
        prop::collection::vec(1_u8.., BLOCK).prop_map(Damage::Overwrite),
    ]
}

proptest! {
    #[test]
    fn every_damage_is_found_and_named(
        block_number in 0_u64..1 << 40,
        generation in 2_u64..1 << 50,
        damage in damage(),
    ) {
        let offset = block_number * BLOCK as u64;
        let (old, new) = (write(offset, BLOCK, mark(generation - 1)), write(offset, BLOCK, mark(generation)));
        let mut block = new.clone();
        let (named, alone) = match damage {
            Damage::FlipBit(bit) => {
                block[bit / 8] ^= 1 << (bit % 8);
                (FaultKind::Corrupt, Some(FaultKind::Corrupt))
            }
            // Checked alone, an old block is as valid as a new one.
            Damage::Restore => {
                block.clone_from(&old);
                (FaultKind::LostWrite, None)
            }
            Damage::Erase => {
                block.fill(0);
                (FaultKind::LostWrite, Some(FaultKind::Foreign))
            }
            Damage::CopyFrom(distance) => {
                block = write(offset + distance * BLOCK as u64, BLOCK, mark(generation));
                (FaultKind::Misdirected, Some(FaultKind::Misdirected))
            }
            Damage::Tear(sectors, front) => {
                let cut = sectors * SECTOR;
                let range = if front { 0..cut } else { BLOCK - cut..BLOCK };
                block[range.clone()].copy_from_slice(&old[range]);
                (FaultKind::Torn, Some(FaultKind::Torn))
            }
            Damage::Overwrite(bytes) => {
                block = bytes;
                (FaultKind::Foreign, Some(FaultKind::Foreign))
            }
        };
        prop_assert_eq!(judge(&new, offset, Expected::This(mark(generation))), Ok(()));
        prop_assert_eq!(judge(&block, offset, Expected::This(mark(generation))), Err(named));
        prop_assert_eq!(judge(&block, offset, Expected::Anything).err(), alone);
    }
}
