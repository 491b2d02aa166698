//! The policy of a file (override, rank, whether it is update-heavy, when it is compressed), in a record by its map. A
//! file with the default policy has no record.

use oncefs_dedup::{Compress, FilePolicy, PolicyOverride, Rank, Slowdown};

use super::checksum;
use crate::MapId;

const SEED: u64 = 0x706F_6C69;
const BODY_BYTES: usize = 4;
/// From this number on the first byte means that a slowdown is set, and counts 256 percent of it.
const SLOWDOWN: u8 = 7;
/// The last byte: whether the file is update-heavy, and above it when it is compressed.
const UPDATE_HEAVY: u8 = 1;
const COMPRESS_SHIFT: u32 = 1;
/// Size of the record in bytes.
pub const BYTES: usize = BODY_BYTES + 4;

/// The record's value.
pub fn encode(map: MapId, policy: &FilePolicy) -> Vec<u8> {
    let (policy_override, run) = match policy.policy_override {
        None => (0, 0),
        Some(PolicyOverride::Off) => (1, 0),
        Some(PolicyOverride::Inline) => (2, 0),
        Some(PolicyOverride::Later) => (3, 0),
        Some(PolicyOverride::Selective) => (4, 0),
        Some(PolicyOverride::Run(blocks)) => (5, (blocks.clamp(1, 256) - 1) as u8),
        Some(PolicyOverride::Slowdown(None)) => (6, 0),
        Some(PolicyOverride::Slowdown(Some(slowdown))) => {
            let percent = slowdown.0.min(Slowdown::PERCENT_MAX);
            (SLOWDOWN + (percent / 256) as u8, (percent % 256) as u8)
        }
    };
    let compress = policy.compress.map_or(0, |compress| match compress {
        Compress::Off => 1,
        Compress::Later => 2,
        Compress::Inline => 3,
        Compress::Auto => 4,
    });
    let last = compress << COMPRESS_SHIFT | u8::from(policy.is_update_heavy);
    let mut bytes = vec![policy_override, run, policy.rank.number(), last];
    let sum = sum(map, &bytes);
    bytes.extend_from_slice(&sum);
    bytes
}

/// Decodes the record's value. None: it is damaged, or another map's.
pub fn decode(map: MapId, bytes: &[u8]) -> Option<FilePolicy> {
    let (body, stored) = bytes.split_first_chunk::<BODY_BYTES>()?;
    if stored != sum(map, body) {
        return None;
    }
    let policy_override = match *body {
        [0, 0, ..] => None,
        [1, 0, ..] => Some(PolicyOverride::Off),
        [2, 0, ..] => Some(PolicyOverride::Inline),
        [3, 0, ..] => Some(PolicyOverride::Later),
        [4, 0, ..] => Some(PolicyOverride::Selective),
        [5, run, ..] => Some(PolicyOverride::Run(u32::from(run) + 1)),
        [6, 0, ..] => Some(PolicyOverride::Slowdown(None)),
        [high @ SLOWDOWN..=u8::MAX, low, ..] => {
            let percent = u32::from(high - SLOWDOWN) * 256 + u32::from(low);
            Some((percent <= Slowdown::PERCENT_MAX).then_some(PolicyOverride::Slowdown(Some(Slowdown(percent))))?)
        }
        _ => return None,
    };
    let [_, _, rank, last] = *body;
    let compress = match last >> COMPRESS_SHIFT {
        0 => None,
        1 => Some(Compress::Off),
        2 => Some(Compress::Later),
        3 => Some(Compress::Inline),
        4 => Some(Compress::Auto),
        _ => return None,
    };
    let is_update_heavy = last & UPDATE_HEAVY != 0;
    Some(FilePolicy { policy_override, rank: Rank::from_number(rank)?, is_update_heavy, compress })
}

fn sum(map: MapId, body: &[u8]) -> [u8; 4] {
    (checksum(body, SEED ^ map.0.rotate_left(32)) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = FilePolicy> {
        let runs = (1..=256).map(PolicyOverride::Run);
        let overrides = [
            None,
            Some(PolicyOverride::Off),
            Some(PolicyOverride::Inline),
            Some(PolicyOverride::Later),
            Some(PolicyOverride::Selective),
        ];
        let slowdowns = (0..=Slowdown::PERCENT_MAX).map(|percent| Some(Slowdown(percent))).chain([None]);
        let others = runs.chain(slowdowns.map(PolicyOverride::Slowdown));
        overrides.into_iter().chain(others.map(Some)).flat_map(|policy_override| {
            let compress = [None].into_iter().chain(Compress::ALL.map(Some));
            let ranked = move |rank| {
                let compress = compress.clone();
                let heavy = [false, true].into_iter();
                let heavy = heavy.flat_map(move |heavy| compress.clone().map(move |compress| (heavy, compress)));
                heavy.map(move |(is_update_heavy, compress)| FilePolicy {
                    policy_override,
                    rank,
                    is_update_heavy,
                    compress,
                })
            };
            Rank::ALL.into_iter().flat_map(ranked)
        })
    }

    #[test]
    fn policies_have_their_golden_bytes_and_come_back() {
        let policy = FilePolicy {
            policy_override: Some(PolicyOverride::Run(8)),
            rank: Rank::Random,
            is_update_heavy: true,
            compress: None,
        };
        let bytes = encode(MapId(7), &policy);
        assert_eq!(bytes, [5, 7, 2, 1, 32, 130, 157, 53]);
        let compressed = FilePolicy { compress: Some(Compress::Inline), ..policy };
        assert_eq!(encode(MapId(7), &compressed)[..4], [5, 7, 2, 7]);
        let policy = FilePolicy {
            policy_override: Some(PolicyOverride::Slowdown(Some(Slowdown(300)))),
            ..FilePolicy::default()
        };
        assert_eq!(encode(MapId(7), &policy)[..4], [8, 44, 0, 0]);
        for policy in all() {
            assert_eq!(decode(MapId(9), &encode(MapId(9), &policy)), Some(policy));
        }
    }

    #[test]
    fn any_flipped_bit_is_noticed_and_so_is_another_map() {
        let good =
            encode(MapId(7), &FilePolicy { policy_override: Some(PolicyOverride::Later), ..FilePolicy::default() });
        assert_eq!(decode(MapId(8), &good), None);
        assert_eq!((decode(MapId(7), &good[..7]), decode(MapId(7), &[&good[..], &[0]].concat())), (None, None));
        for bit in 0..good.len() * 8 {
            let mut flipped = good.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(MapId(7), &flipped), None, "bit {bit}");
        }
    }

    #[test]
    fn fields_that_contradict_each_other_are_damage() {
        for body in [[6, 1, 0, 0], [10, 233, 0, 0], [11, 0, 0, 0], [1, 1, 0, 0], [0, 0, 4, 0], [0, 0, 0, 10]] {
            let bytes = [&body[..], &sum(MapId(7), &body)].concat();
            assert_eq!(decode(MapId(7), &bytes), None, "{body:?}");
        }
    }
}
