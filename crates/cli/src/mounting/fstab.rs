//! The lines of fstab(5) that name oncefs.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::cluster_name;
use super::mount_table::unescape;

/// The default file of mount(8).
pub const FSTAB: &str = "/etc/fstab";

/// One line: a volume, and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The volume.
    pub volume: PathBuf,
    /// The mount point.
    pub dir: PathBuf,
    /// The options as written there.
    pub options: OsString,
}

impl Entry {
    /// The name of the disk that it mounts, if it mounts one.
    pub fn disk(&self) -> Option<&str> {
        let options = self.options.to_str()?;
        options.split(',').rev().find_map(|option| option.strip_prefix("disk="))
    }

    /// Whether this is among the options.
    pub fn has(&self, option: &str) -> bool {
        self.options.as_bytes().split(|byte| *byte == b',').any(|given| given == option.as_bytes())
    }
}

/// The lines of type oncefs, in order. A missing file has none.
///
/// # Errors
///
/// The file exists but cannot be read.
pub fn read(file: &Path) -> io::Result<Vec<Entry>> {
    match std::fs::read(file) {
        Ok(text) => Ok(text.split(|&byte| byte == b'\n').filter_map(parse).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// `volume dir type options dump pass`, between blanks, with octal escapes.
fn parse(line: &[u8]) -> Option<Entry> {
    let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let (volume, dir, kind) = (fields.next()?, fields.next()?, fields.next()?);
    if volume.starts_with(b"#") || !matches!(kind, b"oncefs" | b"fuse.oncefs") {
        return None;
    }
    let options = unescape(fields.next().unwrap_or(b"defaults"));
    let volume = PathBuf::from(unescape(volume));
    // A name that is wrong stays, and is no volume.
    let directory = cluster_name::directory_of(&volume).ok().flatten();
    Some(Entry { volume: directory.unwrap_or(volume), dir: unescape(dir).into(), options })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_oncefs_are_found_among_others() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("fstab");
        let text = "# /srv/old /old oncefs defaults 0 0\n\
                    UUID=1 / ext4 errors=remount-ro 0 1\n\
                    \n\
                    /srv/volume\t/mnt   oncefs  noatime,memory=64M 0 0\n\
                    /srv/my\\040files /home/a\\040b fuse.oncefs\n\
                    #/srv/x /x oncefs\n\
                    /srv/short /short\n";
        std::fs::write(&file, text).unwrap();
        let entry = |volume: &str, dir: &str, options: &str| Entry {
            volume: volume.into(),
            dir: dir.into(),
            options: options.into(),
        };
        let expected =
            [entry("/srv/volume", "/mnt", "noatime,memory=64M"), entry("/srv/my files", "/home/a b", "defaults")];
        assert_eq!(read(&file).unwrap(), expected);
        assert!(expected[0].has("noatime") && !expected[0].has("memory") && !expected[1].has("noauto"));
        assert_eq!(read(&dir.path().join("none")).unwrap(), []);
        assert_eq!(entry("/srv/volume", "/home", "noatime,disk=home,mkfs=ext4").disk(), Some("home"));
        assert_eq!(expected[0].disk(), None);
    }
}
