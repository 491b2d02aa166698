//! The record of a head: which process has a volume in objects open, in which epoch, and until when.

use super::{at, checksum, padded};
use crate::{Error, Result};

/// Size of the record in bytes.
pub const BYTES: usize = 256;
const MAGIC: &[u8; 16] = b"oncefs head\n\0\0\0\0";
const ID_AT: usize = 16;
const EPOCH_AT: usize = 32;
const RENEWALS_AT: usize = 40;
const LEASE_AT: usize = 48;
const STATE_AT: usize = 52;
const ADDRESS_AT: usize = 56;
const OWNER_AT: usize = 120;
const CHECKSUM_AT: usize = 248;
const SEED: u64 = 0x6865_6164;
const _: () = assert!(CHECKSUM_AT + 8 == BYTES);

/// How far a head is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadState {
    /// It has the volume open.
    Open,
    /// It closed the volume, and everything that it began is durable or failed.
    Released,
    /// It has the volume open, and programs use it.
    Serves,
    /// As `Released`, and for the length of a lease only the owner in the record may open the volume.
    Reserved,
}

impl HeadState {
    const ALL: [Self; 4] = [Self::Open, Self::Released, Self::Serves, Self::Reserved];

    fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u32 == number)
    }
}

/// The head of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadRecord {
    /// The volume.
    pub volume_id: [u8; 16],
    /// The number of this head. Each opening gets the next one.
    pub epoch: u64,
    /// How often it renewed its lease. A head whose count stands still for the length of its lease has lost it.
    pub renewals: u64,
    /// Length of the lease.
    pub lease_millis: u32,
    /// How far it is.
    pub state: HeadState,
    /// The client, as the cluster blocklists it. At most 64 bytes are kept.
    pub address: String,
    /// Machine and directory: its own, for messages, or those for which the volume is reserved. At most 128 bytes are
    /// kept.
    pub owner: String,
}

impl HeadRecord {
    /// The content of the object.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..ID_AT].copy_from_slice(MAGIC);
        bytes[ID_AT..EPOCH_AT].copy_from_slice(&self.volume_id);
        bytes[EPOCH_AT..RENEWALS_AT].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[RENEWALS_AT..LEASE_AT].copy_from_slice(&self.renewals.to_le_bytes());
        bytes[LEASE_AT..STATE_AT].copy_from_slice(&self.lease_millis.to_le_bytes());
        bytes[STATE_AT..ADDRESS_AT].copy_from_slice(&(self.state as u32).to_le_bytes());
        padded::put(&mut bytes[ADDRESS_AT..OWNER_AT], &self.address);
        padded::put(&mut bytes[OWNER_AT..CHECKSUM_AT], &self.owner);
        let sum = checksum(&bytes[..CHECKSUM_AT], SEED);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the content of the object `name`. None: no head was there yet, because the object is empty.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn decode(bytes: &[u8], name: &str) -> Result<Option<Self>> {
        let damaged = |detail: &str| Err(Error::corrupt(format!("the object {name}"), detail));
        if bytes.is_empty() {
            return Ok(None);
        }
        if bytes.len() != BYTES || &bytes[..ID_AT] != MAGIC {
            return damaged("it is no record of a head");
        }
        if at::u64(bytes, CHECKSUM_AT) != checksum(&bytes[..CHECKSUM_AT], SEED) {
            return damaged("its checksum does not match");
        }
        let Some(state) = HeadState::from_number(at::u32(bytes, STATE_AT)) else {
            return damaged("its state is unknown");
        };
        Ok(Some(Self {
            volume_id: bytes[ID_AT..EPOCH_AT].try_into().expect("sixteen bytes"),
            epoch: at::u64(bytes, EPOCH_AT),
            renewals: at::u64(bytes, RENEWALS_AT),
            lease_millis: at::u32(bytes, LEASE_AT),
            state,
            address: padded::text(&bytes[ADDRESS_AT..OWNER_AT]),
            owner: padded::text(&bytes[OWNER_AT..CHECKSUM_AT]),
        }))
    }

    /// Whether a holder, as a lock names it, is the owner, as far as the bytes that are kept tell.
    pub fn is_owner(&self, holder: &str) -> bool {
        is_kept_of(&self.owner, holder)
    }

    /// Whether the volume is reserved for another than `holder`.
    pub fn is_reserved_for_another(&self, holder: &str) -> bool {
        self.state == HeadState::Reserved && !self.is_owner(holder)
    }
}

/// Whether a record that names `holder` has this owner once it is read.
pub fn is_kept_of(owner: &str, holder: &str) -> bool {
    let mut kept = [0; CHECKSUM_AT - OWNER_AT];
    padded::put(&mut kept, holder);
    // `owner` may be from a record that was never written.
    owner == padded::text(&kept) || owner == holder
}

#[cfg(test)]
impl HeadRecord {
    /// A head that has not begun yet.
    pub fn unbegun() -> Self {
        let (address, owner) = (String::new(), String::new());
        let volume_id = [1; 16];
        Self { volume_id, epoch: 0, renewals: 0, lease_millis: 5000, state: HeadState::Open, address, owner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> HeadRecord {
        HeadRecord {
            volume_id: [7; 16],
            epoch: 3,
            renewals: 260,
            lease_millis: 5000,
            state: HeadState::Released,
            address: "10.0.0.1:0/77".to_owned(),
            owner: "head:/srv/home".to_owned(),
        }
    }

    #[test]
    fn the_record_has_its_golden_bytes_and_comes_back() {
        let bytes = sample().encode();
        assert_eq!(&bytes[..16], b"oncefs head\n\0\0\0\0");
        assert_eq!(bytes[16..32], [7; 16]);
        assert_eq!(bytes[32..48], [3, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[48..56], [0x88, 0x13, 0, 0, 1, 0, 0, 0]);
        assert_eq!(&bytes[56..70], b"10.0.0.1:0/77\0");
        assert_eq!(&bytes[120..135], b"head:/srv/home\0");
        assert_eq!(HeadRecord::decode(&bytes, "lock").unwrap(), Some(sample()));
        for (state, number) in [(HeadState::Open, 0), (HeadState::Serves, 2), (HeadState::Reserved, 3)] {
            let other = HeadRecord { state, ..sample() };
            assert_eq!(other.encode()[52..56], [number, 0, 0, 0]);
            assert_eq!(HeadRecord::decode(&other.encode(), "lock").unwrap(), Some(other));
        }
        let long = HeadRecord { owner: "x".repeat(200), ..sample() };
        assert_eq!(HeadRecord::decode(&long.encode(), "lock").unwrap().unwrap().owner, "x".repeat(128));
        assert_eq!(HeadRecord::decode(&[], "lock").unwrap(), None);
    }

    #[test]
    fn a_volume_is_reserved_for_one_holder_however_long_its_name_is() {
        // The last one is cut within a character.
        for heir in ["second:/srv/home".to_owned(), "x".repeat(200), format!("x{}", "\u{e4}".repeat(100))] {
            let reserved = HeadRecord { state: HeadState::Reserved, owner: heir.clone(), ..sample() };
            let read = HeadRecord::decode(&reserved.encode(), "lock").unwrap().unwrap();
            assert!(!read.is_reserved_for_another(&heir) && read.is_reserved_for_another("third:/srv/home"));
            assert!(!sample().is_reserved_for_another(&heir), "it is free");
        }
    }

    #[test]
    fn any_flipped_bit_and_any_other_length_is_damage() {
        let good = sample().encode();
        for bit in 0..BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(HeadRecord::decode(&bad, "lock"), Err(Error::Corrupt { .. })), "bit {bit}");
        }
        for len in 1..BYTES {
            assert!(HeadRecord::decode(&good[..len], "lock").is_err(), "{len} bytes");
        }
    }
}
