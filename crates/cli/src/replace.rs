//! Replaces files as a whole: no reader sees a part of a new one.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::process::signals::Uninterrupted;

/// Checks that a file's directory exists, and that its path is free or a regular file: a device or a link such as
/// `/dev/stdout` would be lost.
pub fn can_be_replaced(file: &Path) -> io::Result<()> {
    let dir = std::path::absolute(file)?;
    fs::metadata(dir.parent().ok_or_else(|| io::Error::other("it has no name"))?)?;
    match fs::symlink_metadata(file) {
        Ok(about) if about.is_dir() => Err(io::Error::other("it is a directory")),
        Ok(about) if !about.is_file() => Err(io::Error::other("it is not a regular file")),
        _ => Ok(()),
    }
}

/// Writes a new file with this mode next to the old one, and then replaces the old one by it.
pub fn replace(file: &Path, text: &str, mode: u32) -> io::Result<()> {
    can_be_replaced(file)?;
    let name = file.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
    // node_exporter reads only files that end in .prom.
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    let beside = file.with_file_name(hidden);
    // An interrupted command leaves no temporary file.
    let _uninterrupted = Uninterrupted::begin();
    let write = || {
        let mut new = File::options().write(true).create_new(true).mode(mode).open(&beside)?;
        // The umask may have cleared some bits.
        new.set_permissions(Permissions::from_mode(mode))?;
        new.write_all(text.as_bytes())?;
        fs::rename(&beside, file)
    };
    write().inspect_err(|_| drop(fs::remove_file(&beside)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nothing_stays_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("oncefs.prom");
        fs::write(&file, "old").unwrap();
        for mode in [0o644, 0o600] {
            replace(&file, "new\n", mode).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), "new\n");
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, mode);
        }
        assert!(replace(dir.path(), "new", 0o644).is_err(), "a directory is no file");
        assert!(replace(&dir.path().join("missing/file"), "new", 0o644).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_or_a_socket_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let [target, link, socket] = ["target", "link", "socket"].map(|name| dir.path().join(name));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for file in [&link, &socket] {
            assert!(replace(file, "new", 0o644).unwrap_err().to_string().contains("not a regular file"));
        }
        assert_eq!((fs::read_to_string(&target).unwrap(), link.is_symlink()), ("old".to_owned(), true));
    }
}
