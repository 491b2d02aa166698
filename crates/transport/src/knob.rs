//! One of the kernel's global knobs, turned while something is mounted and then turned back.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// A knob with another value until dropped. The file lock keeps two processes from restoring each other's value.
#[derive(Debug)]
pub struct Knob {
    path: PathBuf,
    file: File,
    previous: String,
}

impl Knob {
    /// Turns the knob to what `wanted` makes of its value. None: it is there already.
    ///
    /// # Errors
    /// There is no such knob, or this process may not turn it.
    pub fn turn(path: &Path, wanted: impl Fn(&str) -> Option<String>) -> io::Result<Option<Self>> {
        if wanted(&value(&File::open(path)?)?).is_none() {
            return Ok(None);
        }
        let mut file = File::options().read(true).write(true).open(path)?;
        // SAFETY: flock on a descriptor that is open.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // Somebody may have turned it meanwhile, and will turn it back: so it is turned all the same.
        let previous = value(&file)?;
        if let Some(wanted) = wanted(&previous) {
            turn_to(&mut file, &wanted)?;
        }
        Ok(Some(Self { path: path.to_owned(), file, previous }))
    }
}

/// Pages that one request may have: the kernel's global knob, which it samples when it reads the answer to INIT.
pub const PAGE_LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";

/// Pages that a request of this size needs.
fn pages_for(request_bytes_max: u32) -> u64 {
    const PAGE_BYTES: u32 = 4096;
    u64::from(request_bytes_max.div_ceil(PAGE_BYTES))
}

/// Raises [`PAGE_LIMIT`] until dropped if requests of this size need it. None: they do not.
///
/// # Errors
/// As [`Knob::turn`]; then the kernel cuts requests to what its limit allows.
pub fn raise_page_limit(request_bytes_max: u32) -> io::Result<Option<Knob>> {
    let pages = pages_for(request_bytes_max);
    let wanted = |now: &str| now.parse::<u64>().is_ok_and(|limit| limit < pages).then(|| pages.to_string());
    Knob::turn(Path::new(PAGE_LIMIT), wanted)
}

impl Drop for Knob {
    fn drop(&mut self) {
        if let Err(e) = turn_to(&mut self.file, &self.previous) {
            log::warn!("cannot set {} back to {}: {e}", self.path.display(), self.previous);
        }
    }
}

fn value(mut file: &File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

fn turn_to(file: &mut File, value: &str) -> io::Result<()> {
    file.rewind()?;
    file.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_has_its_value_while_held_and_the_old_one_after() {
        let knob = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(knob.path(), "N\n").unwrap();
        let read = || std::fs::read_to_string(knob.path()).unwrap();
        let wanted = |now: &str| (now != "Y").then(|| "Y".to_owned());
        let held = Knob::turn(knob.path(), wanted).unwrap().expect("it was off");
        assert_eq!(read().trim(), "Y");
        assert!(Knob::turn(knob.path(), wanted).unwrap().is_none(), "it is on");
        drop(held);
        assert_eq!(read().trim(), "N");
        assert!(Knob::turn(Path::new("/nonexistent"), wanted).is_err());
    }

    #[test]
    fn a_request_needs_a_page_per_4_kib_begun() {
        assert_eq!(pages_for(1024 * 1024), 256);
        assert_eq!(pages_for(1024 * 1024 + 1), 257);
    }

    #[test]
    fn the_page_limit_is_raised_while_held_and_restored_after() {
        let limit = || std::fs::read_to_string(PAGE_LIMIT).unwrap().trim().parse::<u32>().unwrap();
        // Somebody else may have raised it now, and turns it back before it can be raised here.
        let pages = limit() + 256;
        let raised = raise_page_limit(pages * 4096).unwrap().expect("above the present limit");
        assert_eq!(limit(), pages);
        let before = raised.previous.clone();
        drop(raised);
        let knob = File::open(PAGE_LIMIT).unwrap();
        knob.lock_shared().unwrap();
        assert_eq!(value(&knob).unwrap(), before);
    }
}
