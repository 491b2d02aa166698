//! Measures what is found and what it costs while a battery empties: SmartDedup's figure 11.
//!
//! The machine's batteries are covered by a made one, in a mount namespace of this process: the daemon reads the same
//! files as always.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use oncefs_toolbox::Table;
use serde::Serialize;

use crate::aligned::BLOCK_BYTES;
use crate::content::{Content, Random};
use crate::failure::{During, Failure, Result, tell};
use crate::files::{self, open};
use crate::machine;
use crate::measure::Latencies;
use crate::mount::rotated;
use crate::report::as_markdown;
use crate::shared_args::Rounds;
use crate::side::{Bench, Side, SideSpec};
use crate::spread::Spread;

/// Where the kernel shows batteries.
const POWER_SUPPLY: &CStr = c"/sys/class/power_supply";
/// Share of duplicates: what the paper finds with a full battery.
const DUPLICATE_PERCENT: usize = 51;
/// Charges in the middle of five equal parts of the way from 100 to 20 %.
const CHARGES: [u8; 5] = [92, 76, 60, 44, 28];
/// How long a daemon may take to notice the charge.
const NOTICED_WITHIN: Duration = Duration::from_secs(60);
/// Rounding of the share in the status.
const ROUNDING: f64 = 0.5;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supply {
    /// ext4, to which the paper compares.
    Ext4,
    /// A mount that deduplicates nothing.
    Off,
    /// A mount on mains.
    Mains,
    /// A mount on a battery with this charge, in percent.
    Battery(u8),
}

impl Supply {
    fn name(self) -> String {
        match self {
            Supply::Ext4 => "ext4".to_owned(),
            Supply::Off => "off".to_owned(),
            Supply::Mains => "mains".to_owned(),
            Supply::Battery(percent) => format!("{percent} %"),
        }
    }

    fn spec(self, profile: &str) -> Result<SideSpec> {
        let text = match self {
            Supply::Ext4 => "ext4".to_owned(),
            Supply::Off => format!("oncefs=-o profile={profile},inline=off,worker=off"),
            Supply::Mains | Supply::Battery(_) => format!("oncefs=-o profile={profile},worker=off,cpu_percent_max=100"),
        };
        text.parse().map_err(Failure::new)
    }

    /// The share of requests that the daemon looks up once it knows the charge.
    fn share(self) -> Option<f64> {
        match self {
            Supply::Ext4 | Supply::Off => None,
            Supply::Mains => Some(100.0),
            Supply::Battery(percent) => Some(f64::from(percent)),
        }
    }
}

/// One mount in one repetition.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    supply: String,
    repetition: usize,
    /// Until all was durable.
    seconds: f64,
    /// Of the whole machine, until it was unmounted.
    cpu_seconds: f64,
    /// Duplicates among the blocks written, and blocks that became references as they were written.
    duplicates: [u64; 2],
}

/// Batteries of the machine as this process and its children see them.
struct MadeSupply(PathBuf);

impl MadeSupply {
    /// Leaves the mount namespace of the machine. Call it before there is another thread.
    fn cover(directory: &Path) -> Result<MadeSupply> {
        let made = directory.join("power-supply");
        fs::create_dir_all(&made).during(|| format!("cannot create {}", made.display()))?;
        let source =
            std::ffi::CString::new(made.as_os_str().as_encoded_bytes()).during(|| "cannot name the batteries")?;
        let done = |result: libc::c_int, activity: &str| match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()).during(|| activity.to_owned()),
        };
        // SAFETY: unshare and mount take flags and C strings that live until they return.
        unsafe {
            done(libc::unshare(libc::CLONE_NEWNS), "cannot leave the mount namespace")?;
            let (root, none) = (c"/".as_ptr(), c"none".as_ptr());
            let private = libc::MS_REC | libc::MS_PRIVATE;
            done(libc::mount(none, root, std::ptr::null(), private, std::ptr::null()), "cannot make mounts private")?;
            let place = POWER_SUPPLY.as_ptr();
            let bound = libc::mount(source.as_ptr(), place, std::ptr::null(), libc::MS_BIND, std::ptr::null());
            done(bound, "cannot cover /sys/class/power_supply")?;
        }
        Ok(MadeSupply(made))
    }

    fn set(&self, supply: Supply) -> Result<()> {
        let battery = self.0.join("BAT0");
        let during = || format!("cannot make the battery {}", battery.display());
        let Supply::Battery(percent) = supply else {
            return if battery.exists() { fs::remove_dir_all(&battery).during(during) } else { Ok(()) };
        };
        fs::create_dir_all(&battery).during(during)?;
        let files =
            [("type", "Battery"), ("present", "1"), ("status", "Discharging"), ("capacity", &percent.to_string())];
        files.into_iter().try_for_each(|(name, text)| fs::write(battery.join(name), text).during(during))
    }
}

/// Writes so many bytes at random at every charge in every repetition, and prints the table.
pub fn run(profile: &str, bytes: u64, rounds: Rounds, bench: &Bench) -> Result<Vec<Reading>> {
    let made = MadeSupply::cover(&bench.directory)?;
    let charges = CHARGES.map(Supply::Battery);
    let supplies: Vec<Supply> = [Supply::Ext4, Supply::Off, Supply::Mains].into_iter().chain(charges).collect();
    let mut readings = Vec::new();
    for (repetition, seed) in rounds.iter() {
        let blocks = bytes as usize / BLOCK_BYTES;
        let content = Content::new(seed, blocks, DUPLICATE_PERCENT, 0)?;
        let places = Random::new(seed).permutation(blocks);
        for (_, supply) in rotated(&supplies, repetition) {
            tell(&format!("battery, repetition {}: {}", repetition + 1, supply.name()));
            made.set(*supply)?;
            readings.push(measure(bench, (*supply, profile), repetition, (&content, &places))?);
        }
    }
    println!("\nprofile {profile}, {DUPLICATE_PERCENT} % of duplicates (figure 11)\n{}", table(&supplies, &readings));
    Ok(readings)
}

fn measure(
    bench: &Bench,
    (supply, profile): (Supply, &str),
    repetition: usize,
    (content, places): (&Content, &[usize]),
) -> Result<Reading> {
    machine::drop_caches()?;
    let mut side = Side::create(bench, &supply.spec(profile)?, &supply.name(), 0)?;
    side.format()?;
    side.mount()?;
    if let Some(percent) = supply.share() {
        wait_for_share(&side, percent)?;
    }
    let path = side.root().join("file");
    let (cpu, began) = (machine::cpu_seconds_machine()?, Instant::now());
    files::write_at(&open(&path, true)?, content, places, &mut Latencies::with_capacity(places.len()))?;
    let seconds = began.elapsed().as_secs_f64();
    let shared = if side.deduplicates() { side.stats()?.number("counters", "blocks_shared")? } else { 0 };
    side.unmount()?;
    let cpu_seconds = machine::cpu_seconds_machine()? - cpu;
    side.remount_cold()?;
    files::verify_written(&side.root().join("file"), content, &files::last_writes(content.blocks(), places))?;
    side.unmount()?;
    let duplicates = [(content.blocks() * DUPLICATE_PERCENT / 100) as u64, shared];
    Ok(Reading { supply: supply.name(), repetition, seconds, cpu_seconds, duplicates })
}

/// Waits until the daemon has read the charge.
fn wait_for_share(side: &Side, percent: f64) -> Result<()> {
    let began = Instant::now();
    while (side.dedup_status()?.percent("inline_percent_max")? - percent).abs() > ROUNDING {
        if began.elapsed() > NOTICED_WITHIN {
            return Err(Failure::new(format!("the daemon did not notice a charge of {percent} %")));
        }
        sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn table(supplies: &[Supply], readings: &[Reading]) -> String {
    let mut table = Table::new(&["supply", "s", "CPU s of the machine", "duplicates found, % of the blocks"]);
    for supply in supplies {
        let spread = |value: &dyn Fn(&Reading) -> f64| {
            let of = readings.iter().filter(|reading| reading.supply == supply.name());
            Spread::of(of.map(value)).map_or("-".to_owned(), |spread| format!("{spread:.2}"))
        };
        let found = |reading: &Reading| {
            reading.duplicates[1] as f64 * DUPLICATE_PERCENT as f64 / reading.duplicates[0].max(1) as f64
        };
        let cells = [spread(&|reading| reading.seconds), spread(&|reading| reading.cpu_seconds), spread(&found)];
        table.row([supply.name()].into_iter().chain(cells).collect());
    }
    as_markdown(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_battery_has_the_files_that_the_kernel_s_have_and_goes_on_mains() {
        let directory = tempfile::tempdir().unwrap();
        let made = MadeSupply(directory.path().to_owned());
        made.set(Supply::Battery(44)).unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join("BAT0").join(name)).unwrap();
        assert_eq!(["type", "status", "capacity"].map(read), ["Battery", "Discharging", "44"]);
        made.set(Supply::Mains).unwrap();
        made.set(Supply::Off).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn charges_are_in_the_middle_of_equal_parts_of_the_paper_s_way() {
        let mean = CHARGES.iter().map(|charge| f64::from(*charge)).sum::<f64>() / CHARGES.len() as f64;
        assert_eq!(mean, 60.0);
        assert_eq!(Supply::Battery(44).share(), Some(44.0));
    }
}
