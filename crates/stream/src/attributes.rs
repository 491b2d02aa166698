//! The attributes of an inode.

use crate::Malformed;
use crate::base::FLAGS_VERSION;
use crate::fields::Fields;

const NANOSECONDS: u32 = 1_000_000_000;
const XATTR_NAME_BYTES_MAX: usize = 255;
const XATTR_VALUE_BYTES_MAX: usize = 65536;
/// Bytes of all extended attributes of an inode.
const XATTRS_BYTES_MAX: usize = 1 << 20;

/// A moment: seconds since 1970, and nanoseconds after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl Moment {
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seconds.to_le_bytes());
        out.extend_from_slice(&self.nanoseconds.to_le_bytes());
    }

    pub(crate) fn take(fields: &mut Fields) -> Result<Self, Malformed> {
        let (seconds, nanoseconds) = (fields.i64()?, fields.u32()?);
        match nanoseconds < NANOSECONDS {
            true => Ok(Self { seconds, nanoseconds }),
            false => Err(Malformed("a time has a second or more of nanoseconds")),
        }
    }
}

/// Flags of a file or a directory, with the bits of `FS_IOC_GETFLAGS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// Nothing of it changes (`chattr +i`).
    pub const IMMUTABLE: Self = Self(0x10);
    /// It only grows (`chattr +a`).
    pub const APPEND_ONLY: Self = Self(0x20);
    const ALL: u32 = 0xF0;

    /// Those that a stream carries: immutable, append-only, no dump, no time of access.
    pub fn carried(bits: u32) -> Self {
        Self(bits & Self::ALL)
    }

    /// The bits.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The flags that forbid changes of the inode or of the names in it.
    pub fn forbidding(self) -> Self {
        Self(self.0 & (Self::IMMUTABLE.0 | Self::APPEND_ONLY.0))
    }

    /// The other flags.
    pub fn permitting(self) -> Self {
        Self(self.0 & !self.forbidding().0)
    }

    fn take(fields: &mut Fields) -> Result<Self, Malformed> {
        match fields.u32()? {
            bits if bits & !Self::ALL == 0 => Ok(Self(bits)),
            _ => Err(Malformed("a flag is unknown")),
        }
    }
}

/// Owner, mode, times, flags and extended attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Of the last access.
    pub accessed: Moment,
    /// Of the last change of the content.
    pub modified: Moment,
    /// Flags. None for symbolic links, devices, pipes and sockets, and in streams of version 1.
    pub flags: Flags,
    /// Extended attributes, access control lists among them: names and values, ascending by name.
    pub extended: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Attributes {
    /// Checks what a record can hold.
    ///
    /// # Errors
    /// The extended attributes are longer than a stream takes.
    pub fn check(&self) -> Result<(), Malformed> {
        let is_long = |(name, value): &(Vec<u8>, Vec<u8>)| {
            name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX || value.len() > XATTR_VALUE_BYTES_MAX
        };
        let all: usize = self.extended.iter().map(|(name, value)| name.len() + value.len() + 5).sum();
        if all > XATTRS_BYTES_MAX {
            return Err(Malformed("the extended attributes have more than 1 MiB"));
        }
        if self.extended.iter().any(is_long) {
            return Err(Malformed("the name or the value of an extended attribute is too long"));
        }
        if self.extended.iter().any(|(name, _)| name.contains(&0)) {
            return Err(Malformed("the name of an extended attribute holds NUL"));
        }
        match self.extended.is_sorted_by(|one, other| one.0 < other.0) {
            true => Ok(()),
            false => Err(Malformed("the extended attributes are not sorted")),
        }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        for number in [self.mode, self.user, self.group] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        self.accessed.put(out);
        self.modified.put(out);
        out.extend_from_slice(&self.flags.bits().to_le_bytes());
        out.extend_from_slice(&(self.extended.len() as u32).to_le_bytes());
        for (name, value) in &self.extended {
            out.push(name.len() as u8);
            out.extend_from_slice(name);
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(value);
        }
    }

    pub(crate) fn take(fields: &mut Fields, version: u32) -> Result<Self, Malformed> {
        let (mode, user, group) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (accessed, modified) = (Moment::take(fields)?, Moment::take(fields)?);
        let flags = if version < FLAGS_VERSION { Flags::default() } else { Flags::take(fields)? };
        let mut extended = Vec::new();
        for _ in 0..fields.u32()? {
            let name_bytes = fields.u8()?;
            let name = fields.bytes(name_bytes.into())?.to_vec();
            let value_bytes = fields.u32()?;
            extended.push((name, fields.bytes(value_bytes as usize)?.to_vec()));
        }
        let attributes = Self { mode, user, group, accessed, modified, flags, extended };
        attributes.check().map(|()| attributes)
    }
}
