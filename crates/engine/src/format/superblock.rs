//! The file `superblock`: the properties that never change in a volume's life. Sizes and totals are in the log and the
//! checkpoint.

use std::fmt;

use super::{VERSION, VERSION_WITHOUT_CLONES, VERSION_WITHOUT_DATA_POOL, VERSION_WITHOUT_FRAGMENTS, at, checksum};
use crate::{Copies, DataPlace, Error, ObjectAccess, Profile, Result};

/// Size of the superblock in bytes.
pub const BYTES: usize = 4096;
const MAGIC: &[u8; 16] = b"oncefs volume\n\0\0";
const VERSION_AT: usize = 16;
const PROFILE_AT: usize = 20;
const ID_AT: usize = 24;
const SECRET_AT: usize = 40;
const LOG_BYTES_AT: usize = 72;
const PATH_LEN_AT: usize = 80;
const PATH_AT: usize = 82;
const COPIES_AT: usize = BYTES - 9;
const CHECKSUM_AT: usize = BYTES - 8;
const PATH_BYTES_MAX: usize = COPIES_AT - PATH_AT;
const SEED: u64 = 0x7375_7065;
const _: () = assert!(PATH_BYTES_MAX >= 4000);

/// Identity and layout of a volume.
#[derive(Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Identity, stable for the volume's life.
    pub volume_id: [u8; 16],
    /// The key of tags and fingerprints. Only the file's owner can read it.
    pub secret: [u8; 32],
    /// Size of the log in bytes.
    pub log_bytes: u64,
    /// Where the data area is.
    pub data: DataPlace,
    /// The volume's profile.
    pub profile: Profile,
    /// How many copies are kept of the structures that all files depend on. None: as many as the profile says.
    pub copies: Option<Copies>,
    /// Whether there may be lazy clones, which earlier versions of oncefs would take for empty maps.
    pub has_clones: bool,
    /// Whether there may be compressed blocks, which earlier versions of oncefs would take for blocks outside the data
    /// area. Such a volume may have lazy clones too.
    pub has_fragments: bool,
}

/// Leaves out the secret, which no message may show.
impl fmt::Debug for Superblock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { volume_id, secret: _, log_bytes, data, profile, copies, has_clones, has_fragments } = self;
        let mut shown = f.debug_struct("Superblock");
        shown.field("volume_id", volume_id).field("log_bytes", log_bytes).field("data", data).field("profile", profile);
        shown.field("copies", copies).field("has_clones", has_clones);
        shown.field("has_fragments", has_fragments);
        shown.finish_non_exhaustive()
    }
}

impl Superblock {
    /// The bytes of the file.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: the path of the data device is too long.
    pub fn encode(&self) -> Result<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        bytes[..VERSION_AT].copy_from_slice(MAGIC);
        let version = match (self.has_fragments, self.has_clones) {
            _ if has_data_pool(&self.data) => VERSION,
            (true, _) => VERSION_WITHOUT_DATA_POOL,
            (false, true) => VERSION_WITHOUT_FRAGMENTS,
            (false, false) => VERSION_WITHOUT_CLONES,
        };
        bytes[VERSION_AT..PROFILE_AT].copy_from_slice(&version.to_le_bytes());
        bytes[PROFILE_AT..ID_AT].copy_from_slice(&self.profile.number().to_le_bytes());
        bytes[ID_AT..SECRET_AT].copy_from_slice(&self.volume_id);
        bytes[SECRET_AT..LOG_BYTES_AT].copy_from_slice(&self.secret);
        bytes[LOG_BYTES_AT..PATH_LEN_AT].copy_from_slice(&self.log_bytes.to_le_bytes());
        if let Some(path) = path_of(&self.data) {
            if path.len() > PATH_BYTES_MAX {
                return Err(Error::Invalid(format!("the device's path is longer than {PATH_BYTES_MAX} bytes")));
            }
            bytes[PATH_LEN_AT..PATH_AT].copy_from_slice(&(path.len() as u16).to_le_bytes());
            bytes[PATH_AT..PATH_AT + path.len()].copy_from_slice(&path);
        }
        bytes[COPIES_AT] = self.copies.map_or(0, Copies::number);
        let sum = checksum(&bytes[..CHECKSUM_AT], SEED);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    /// Decodes the file's bytes; messages name `path`.
    ///
    /// # Errors
    ///
    /// [`Error::NotAVolume`], [`Error::NewerFormat`] or [`Error::Corrupt`].
    pub fn decode(bytes: &[u8], path: &str) -> Result<Self> {
        if bytes.len() < VERSION_AT || &bytes[..VERSION_AT] != MAGIC {
            return Err(Error::NotAVolume(path.to_owned()));
        }
        let damaged = |detail: &str| Error::corrupt(format!("the superblock of {path}"), detail);
        if bytes.len() != BYTES {
            return Err(damaged("its length is wrong"));
        }
        let version = at::u32(bytes, VERSION_AT);
        if version > VERSION {
            return Err(Error::NewerFormat { found: version, known: VERSION });
        }
        if at::u64(bytes, CHECKSUM_AT) != checksum(&bytes[..CHECKSUM_AT], SEED) {
            return Err(damaged("its checksum does not match"));
        }
        let path_len = usize::from(at::u16(bytes, PATH_LEN_AT));
        if path_len > PATH_BYTES_MAX {
            return Err(damaged("the device's path is too long"));
        }
        let number = at::u32(bytes, PROFILE_AT);
        let profile = Profile::from_number(number);
        let profile = profile.ok_or_else(|| damaged(&format!("profile {number} is unknown")))?;
        Ok(Self {
            volume_id: bytes[ID_AT..SECRET_AT].try_into().expect("sixteen bytes"),
            secret: bytes[SECRET_AT..LOG_BYTES_AT].try_into().expect("thirty-two bytes"),
            log_bytes: at::u64(bytes, LOG_BYTES_AT),
            data: place(&bytes[PATH_AT..PATH_AT + path_len]).ok_or_else(|| damaged("no objects are at its address"))?,
            profile,
            copies: Copies::from_number(bytes[COPIES_AT]),
            has_clones: version > VERSION_WITHOUT_CLONES,
            has_fragments: version > VERSION_WITHOUT_FRAGMENTS,
        })
    }
}

/// Whether the data area lies in another pool than the rest, where earlier versions of oncefs would miss it.
fn has_data_pool(data: &DataPlace) -> bool {
    matches!(data, DataPlace::Objects(access) if access.data_pool.is_some())
}

/// The bytes of a device's path, or of the address of objects, which begins as no absolute path does.
fn path_of(data: &DataPlace) -> Option<Vec<u8>> {
    match data {
        DataPlace::File => None,
        DataPlace::Device(path) => Some(path.as_os_str().as_encoded_bytes().to_vec()),
        DataPlace::Objects(access) => Some(access.to_string().into_bytes()),
    }
}

/// None: it is meant as an address of objects, and is not as one is written.
fn place(path: &[u8]) -> Option<DataPlace> {
    use std::os::unix::ffi::OsStrExt;
    let address = std::str::from_utf8(path).ok().filter(|text| ObjectAccess::is_meant(text));
    match address {
        Some(address) => {
            let access = ObjectAccess::parse(address).ok().filter(|access| access.to_string() == address);
            access.map(DataPlace::Objects)
        }
        None if path.is_empty() => Some(DataPlace::File),
        None => Some(DataPlace::Device(std::ffi::OsStr::from_bytes(path).into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            volume_id: [1; 16],
            secret: [2; 32],
            log_bytes: 64 << 20,
            data: DataPlace::Device("/dev/loop0".into()),
            profile: Profile::Lrlfs,
            copies: Some(Copies::Two),
            has_clones: false,
            has_fragments: false,
        }
    }

    #[test]
    fn no_message_shows_the_secret() {
        let shown = format!("{:?}", Superblock { secret: *b"a secret of exactly thirty-two b", ..sample() });
        assert!(shown.contains("log_bytes") && !shown.contains("secret") && !shown.contains("97, 32, 115"), "{shown}");
    }

    #[test]
    fn a_superblock_has_its_golden_bytes_and_comes_back() {
        let bytes = sample().encode().unwrap();
        assert_eq!(&bytes[..20], b"oncefs volume\n\0\0\x01\0\0\0");
        assert_eq!(bytes[72..82], [0, 0, 0, 4, 0, 0, 0, 0, 10, 0]);
        assert_eq!(&bytes[82..92], b"/dev/loop0");
        assert_eq!(Superblock::decode(&bytes, "v").unwrap(), sample());
        let address = "rados://pool/vol7?id=oncefs&conf=/etc/ceph/ceph.conf";
        let data = DataPlace::Objects(ObjectAccess::parse(address).unwrap());
        let in_objects = Superblock { data, has_clones: true, has_fragments: true, ..sample() };
        let bytes = in_objects.encode().unwrap();
        assert_eq!(&bytes[82..82 + address.len()], address.as_bytes());
        assert_eq!(Superblock::decode(&bytes, "v").unwrap(), in_objects);
        assert_eq!(bytes[16..20], [3, 0, 0, 0]);
        let address = "rados://pool/vol7?id=oncefs&records=1000&data=ec&conf=/etc/ceph/ceph.conf";
        let data = DataPlace::Objects(ObjectAccess::parse(address).unwrap());
        let in_two_pools = Superblock { data, ..in_objects };
        let bytes = in_two_pools.encode().unwrap();
        assert_eq!(bytes[16..20], [4, 0, 0, 0]);
        assert_eq!(bytes[80..82], (address.len() as u16).to_le_bytes());
        assert_eq!(&bytes[82..82 + address.len()], address.as_bytes());
        assert_eq!(Superblock::decode(&bytes, "v").unwrap(), in_two_pools);
        let cloned = Superblock { has_clones: true, ..sample() };
        let bytes = cloned.encode().unwrap();
        assert_eq!(bytes[16..20], [2, 0, 0, 0]);
        assert_eq!(Superblock::decode(&bytes, "v").unwrap(), cloned);
    }

    #[test]
    fn foreign_newer_and_damaged_bytes_are_told_apart() {
        let good = sample().encode().unwrap();
        assert!(matches!(Superblock::decode(b"hello", "v"), Err(Error::NotAVolume(_))));
        let mut newer = good;
        newer[VERSION_AT] = 9;
        assert!(matches!(Superblock::decode(&newer, "v"), Err(Error::NewerFormat { found: 9, known: VERSION })));
        let address = "rados://pool/vol7?id=oncefs&records=1000&data=ec&conf=/etc/ceph/ceph.conf";
        let data = DataPlace::Objects(ObjectAccess::parse(address).unwrap());
        for good in [good, Superblock { data, ..sample() }.encode().unwrap()] {
            for at in PROFILE_AT..BYTES {
                let mut bad = good;
                bad[at] ^= 0x40;
                assert!(matches!(Superblock::decode(&bad, "v"), Err(Error::Corrupt { .. })), "byte {at}");
            }
        }
    }
}
