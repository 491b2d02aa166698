//! The flags of a file as chattr(1) and lsattr(1) know them. The kernel sends two pairs of ioctls as requests. It also
//! uses the second pair itself, to read the flags before it sets them.

use oncefs_engine::Compress;
use oncefs_fs::{FileFlags, FileSystem, Ino};
use oncefs_transport::Errno;

use crate::errno::errno;
use crate::privileges::Credentials;

/// `_IOR('f', 1, long)`, though the argument is an `int`.
const GET_FLAGS: u32 = 0x8008_6601;
/// `_IOW('f', 2, long)`, though the argument is an `int`.
const SET_FLAGS: u32 = 0x4008_6602;
/// `_IOR('X', 31, struct fsxattr)`.
const GET_EXTENDED: u32 = 0x801c_581f;
/// `_IOW('X', 32, struct fsxattr)`.
const SET_EXTENDED: u32 = 0x401c_5820;
/// Bytes of a `struct fsxattr`. It begins with the flags. oncefs does not support the rest (sizes of extents, a
/// project).
const EXTENDED_BYTES: usize = 28;

/// The request of an ioctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagRequest {
    /// The flags, in this form.
    Get(Form),
    /// Sets these and no others.
    Set(FileFlags, Compressed),
}

/// The flags' setting of compression (`chattr +c` and `+m`). They are the attribute `user.oncefs.compress` in
/// another form, which knows less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compressed {
    /// This form of flags has nothing about it.
    Unsaid,
    /// As the mount says.
    AsMount,
    /// It is compressed, at whatever time.
    Yes,
    /// It is not.
    No,
}

impl Compressed {
    /// How flags show this value of the attribute.
    pub(crate) fn of(compress: Option<Compress>) -> Self {
        match compress {
            None => Self::AsMount,
            Some(Compress::Off) => Self::No,
            Some(Compress::Later | Compress::Inline | Compress::Auto) => Self::Yes,
        }
    }

    /// The value of the attribute for these flags, if they differ from those that it has.
    pub(crate) fn changed_from(self, before: Option<Compress>) -> Option<Option<Compress>> {
        match self {
            Self::Unsaid => None,
            same if same == Self::of(before) => None,
            Self::AsMount => Some(None),
            Self::Yes => Some(Some(Compress::Auto)),
            Self::No => Some(Some(Compress::Off)),
        }
    }
}

/// `FS_COMPR_FL`.
const COMPRESS: u32 = 0x4;
/// `FS_NOCOMP_FL`.
const NO_COMPRESS: u32 = 0x400;

/// The form of flags in an ioctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An `int` of `FS_*_FL`.
    Plain,
    /// A `struct fsxattr` with `FS_XFLAG_*`.
    Extended,
}

impl Form {
    /// Each flag's bit in this form, from linux/fs.h.
    fn bits(self) -> [(u32, FileFlags); 4] {
        let (immutable, append_only, no_dump, no_atime) = match self {
            Self::Plain => (0x10, 0x20, 0x40, 0x80),
            Self::Extended => (0x8, 0x10, 0x80, 0x40),
        };
        [
            (immutable, FileFlags::IMMUTABLE),
            (append_only, FileFlags::APPEND_ONLY),
            (no_dump, FileFlags::NO_DUMP),
            (no_atime, FileFlags::NO_ATIME),
        ]
    }

    /// The argument that returns these flags to a program.
    pub(crate) fn encode(self, flags: FileFlags, compressed: Compressed) -> Vec<u8> {
        let bits: u32 = self.bits().iter().filter(|(_, flag)| flags.contains(*flag)).map(|(bit, _)| bit).sum();
        let compression = match (self, compressed) {
            (Self::Plain, Compressed::Yes) => COMPRESS,
            (Self::Plain, Compressed::No) => NO_COMPRESS,
            _ => 0,
        };
        let mut bytes = (bits | compression).to_ne_bytes().to_vec();
        if self == Self::Extended {
            bytes.resize(EXTENDED_BYTES, 0);
        }
        bytes
    }

    /// The flags that an argument sets. EOPNOTSUPP: it sets something that oncefs does not support. EINVAL: it says
    /// both that a file is compressed and that it is not.
    fn decode(self, argument: &[u8]) -> Result<FlagRequest, Errno> {
        let bits = u32::from_ne_bytes(*argument.first_chunk().ok_or(Errno::new(libc::EOPNOTSUPP))?);
        let found = self
            .bits()
            .iter()
            .filter(|(bit, _)| bits & bit != 0)
            .fold(FileFlags::default(), |all, one| all.with(one.1));
        let compressed = match (self, bits & COMPRESS != 0, bits & NO_COMPRESS != 0) {
            (Self::Extended, ..) => Compressed::Unsaid,
            (Self::Plain, false, false) => Compressed::AsMount,
            (Self::Plain, true, false) => Compressed::Yes,
            (Self::Plain, false, true) => Compressed::No,
            (Self::Plain, true, true) => return Err(Errno::new(libc::EINVAL)),
        };
        match self.encode(found, compressed) == argument {
            true => Ok(FlagRequest::Set(found, compressed)),
            false => Err(Errno::new(libc::EOPNOTSUPP)),
        }
    }
}

/// An ioctl's request about a file's flags. ENOTTY: the ioctl is another one. Others as [`Form::decode`].
pub(crate) fn flag_request(command: u32, argument: &[u8]) -> Result<FlagRequest, Errno> {
    match command {
        GET_FLAGS => Ok(FlagRequest::Get(Form::Plain)),
        GET_EXTENDED => Ok(FlagRequest::Get(Form::Extended)),
        SET_FLAGS => Form::Plain.decode(argument),
        SET_EXTENDED => Form::Extended.decode(argument),
        _ => Err(Errno::new(libc::ENOTTY)),
    }
}

/// Refuses a change of flags that the caller may not make. The kernel checks this too, so this check only stops a
/// caller that gets around the kernel's.
pub(crate) fn check_may_set(
    file_system: &FileSystem,
    credentials: Credentials,
    ino: Ino,
    flags: FileFlags,
) -> Result<(), Errno> {
    let changed = flags.changed_from(file_system.flags(ino).map_err(|error| errno(&error))?);
    let is_allowed = !changed.forbids_overwriting() || credentials.may_set_immutable();
    if is_allowed { Ok(()) } else { Err(Errno::new(libc::EPERM)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_survives_the_way_to_the_kernel_in_both_forms() {
        let plain = [Compressed::AsMount, Compressed::Yes, Compressed::No];
        let forms = plain.map(|compressed| (Form::Plain, SET_FLAGS, compressed));
        for (form, command, compressed) in forms.into_iter().chain([(Form::Extended, SET_EXTENDED, Compressed::Unsaid)])
        {
            for bits in 0..16 {
                let flags = FileFlags::from_bits(bits).unwrap();
                let request = flag_request(command, &form.encode(flags, compressed));
                assert_eq!(request, Ok(FlagRequest::Set(flags, compressed)), "{form:?}");
            }
        }
        assert_eq!(Form::Plain.encode(FileFlags::APPEND_ONLY, Compressed::Yes), 0x24_u32.to_ne_bytes());
        assert_eq!(Form::Plain.encode(FileFlags::default(), Compressed::No), 0x400_u32.to_ne_bytes());
        assert_eq!(Form::Extended.encode(FileFlags::APPEND_ONLY, Compressed::Yes)[..4], 0x10_u32.to_ne_bytes());
        assert_eq!(flag_request(SET_FLAGS, &0x404_u32.to_ne_bytes()), Err(Errno::new(libc::EINVAL)));
    }

    #[test]
    fn flags_that_stay_leave_the_time_of_compression() {
        let later = Some(Compress::Later);
        assert_eq!(Compressed::Yes.changed_from(later), None);
        assert_eq!(Compressed::Unsaid.changed_from(later), None);
        assert_eq!(Compressed::AsMount.changed_from(later), Some(None));
        assert_eq!(Compressed::No.changed_from(later), Some(Some(Compress::Off)));
        assert_eq!(Compressed::Yes.changed_from(None), Some(Some(Compress::Auto)));
        assert_eq!(Compressed::AsMount.changed_from(None), None);
    }

    #[test]
    fn what_oncefs_does_not_have_is_refused() {
        let mut project = Form::Extended.encode(FileFlags::default(), Compressed::Unsaid);
        project[12] = 1;
        for (command, argument) in [(SET_FLAGS, &0x8_u32.to_ne_bytes()[..]), (SET_FLAGS, &[]), (SET_EXTENDED, &project)]
        {
            assert_eq!(flag_request(command, argument), Err(Errno::new(libc::EOPNOTSUPP)), "{command:x}");
        }
        assert_eq!(
            flag_request(0x4004_6602, &[0; 4]),
            Err(Errno::new(libc::ENOTTY)),
            "the ioctl of 32-bit programs is the kernel's"
        );
    }
}
