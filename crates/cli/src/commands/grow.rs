//! `oncefs grow`: enlarges a volume, through its daemon if it is mounted.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use clap::Args;
use oncefs_engine::{BLOCK_BYTES, Report, Store};

use crate::commands::help::UNITS;
use crate::control::protocol::Request;
use crate::control::target::{Daemon, Target};
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::figures::of_mount::HostSpace;
use crate::names::shown;
use crate::process::holders;
use crate::profiles;
use crate::size::{NewSize, Size};

/// Caches while an unmounted volume grows.
const GROW_MEMORY: u64 = 64 << 20;

/// Arguments of `grow`.
#[derive(Debug, Args)]
#[command(after_help = format!("{UNITS}\n\nExamples:
  oncefs grow /mnt 2T            to 2 TiB
  oncefs grow /mnt +500G         by 500 GiB
  oncefs grow /srv/volume 2T     a volume that is not mounted"))]
pub struct GrowArgs {
    /// Any path inside a mount, or the volume
    pub target: PathBuf,
    /// New size of the data area, or +SIZE to add
    #[arg(allow_hyphen_values = true)]
    pub size: NewSize,
}

/// Enlarges a volume.
pub fn run(arguments: GrowArgs) -> Outcome {
    let (volume, grown) = match Target::find(&arguments.target)? {
        Target::Mounted(daemon) => {
            let grown = grow_mounted(&daemon, arguments.size)?;
            (daemon.volume, grown)
        }
        Target::Offline(volume) => {
            let grown = grow_offline(&volume, arguments.size)?;
            (volume, grown)
        }
    };
    say!("{} grew from {} to {}", shown(&volume), Size(grown.before), Size(grown.after));
    let has_device = Store::parts_outside(&volume, None).map_or(true, |parts| !parts.is_empty())
        || Store::is_in_objects(&volume).unwrap_or_default();
    if let Some(host) = HostSpace::at(&volume).ok().filter(|_| !has_device) {
        host.too_small_for(&volume, grown.after.saturating_sub(grown.used)).iter().for_each(|note| say!("{note}"));
    }
    Ok(())
}

/// The data area, in bytes.
struct Grown {
    before: u64,
    after: u64,
    /// Bytes that have room already.
    used: u64,
}

fn grow_mounted(daemon: &Daemon, size: NewSize) -> Outcome<Grown> {
    let report: Report = daemon.ask(Request::Stats)?;
    let bytes = |name: &str| report.space.get(name).copied().unwrap_or(0);
    let (before, used) = (bytes("data_bytes"), bytes("used_bytes"));
    let after = checked(before, size)?;
    daemon.ask::<()>(Request::Grow { bytes: after }).map(|()| Grown { before, after, used })
}

fn grow_offline(volume: &Path, size: NewSize) -> Outcome<Grown> {
    let opened = Store::open(volume, &profiles::without_worker(GROW_MEMORY, false)).or_fail(exit::FAILED);
    let store = opened.map_err(|e| holders::name_holder(e, &Store::parts_outside(volume, None).unwrap_or_default()))?;
    let totals = store.totals();
    let [before, used] = [totals.data, totals.used].map(|blocks| blocks.0 * BLOCK_BYTES as u64);
    let grown = checked(before, size).and_then(|after| store.grow(after).or_fail(exit::FAILED).map(|()| after));
    let closed = store.close().or_fail(exit::FAILED);
    let after = grown?;
    closed?;
    Ok(Grown { before, after, used })
}

/// The new size, in whole blocks. A volume never shrinks.
fn checked(before: u64, size: NewSize) -> Outcome<u64> {
    let block = BLOCK_BYTES as u64;
    let asked = size.from(before);
    let after = asked / block * block;
    if after > before {
        return Ok(after);
    }
    let (has, asked) = (Size(before), Size(asked));
    let text = match asked.0.cmp(&before) {
        Ordering::Greater => {
            format!("the volume has {has} and grows by whole blocks of {}: give a larger size", Size(block))
        }
        Ordering::Equal => format!("the volume has {has} already: give a larger size"),
        Ordering::Less => format!("the volume has {has} already and cannot shrink to {asked}: give a larger size"),
    };
    Err(Failure::new(exit::FAILED, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_grows_by_whole_blocks_and_less_than_one_is_refused_with_the_unit() {
        const GIB: u64 = 1 << 30;
        assert_eq!(checked(GIB, NewSize::By(4096)).unwrap(), GIB + 4096);
        assert_eq!(checked(GIB, NewSize::By(5000)).unwrap(), GIB + 4096);
        assert!(checked(GIB, NewSize::By(1024)).unwrap_err().message.contains("whole blocks of 4.00 KiB"));
        assert!(checked(GIB, NewSize::To(GIB + 1)).unwrap_err().message.contains("whole blocks"));
        for size in [NewSize::To(GIB), NewSize::By(0)] {
            assert_eq!(checked(GIB, size).unwrap_err().message, "the volume has 1.00 GiB already: give a larger size");
        }
        assert!(checked(GIB, NewSize::To(1)).unwrap_err().message.contains("cannot shrink"));
    }
}
