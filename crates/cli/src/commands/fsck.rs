//! `oncefs fsck`: checks a volume that is not mounted, and repairs it on request.
//!
//! The engine checks and repairs blocks, the file system names. This module sets the order, names the affected files,
//! shows progress and turns the result into fsck(8)'s exit bits.

mod findings;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use oncefs_engine::{
    Blocks, CheckReport, CutLog, Error, Fault, Lbn, MapId, OpenOptions, Pbn, Phase, Remedy, Salvaged, Store,
};
use oncefs_fs::format::proves_itself;
use oncefs_fs::{FileNames, NameFindings, NamePhase, SystemClock, check_names, fix_names, names_of_maps};

use crate::control::in_use;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::mount_table::{self, Mount};
use crate::names::{Name, shown, shown_all};
use crate::process::confinement::confine_check;
use crate::process::signals::EndSignals;
use crate::process::{holders, memory, setup};
use crate::profiles;
use crate::progress::{Progress, Step};
use findings::Findings;

/// Memory for caches during a check. Sorting takes up to 128 MiB more.
const CHECK_MEMORY: u64 = 64 << 20;

/// Most places in files that are listed for damaged blocks.
const PLACES_MAX: usize = 1_000;

/// Bytes of names kept for the report.
const NAMES_BYTES_MAX: usize = 16 << 20;

/// Arguments of `fsck`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code as of fsck(8), the sum of: 0 clean, 1 errors repaired, 4 errors left, 8 the check could not
run, 16 wrong usage, 32 cancelled.
The volume must not be mounted. Without -y, -p or -a, fsck changes nothing and replays the log in memory.
With one of them, it replays the log for good and repairs errors that have one right answer. Files that
lost their name get one in lost+found. Damaged content is never dropped or guessed: fsck names its files.
What helps where errors are left: -y, if only -p was given; of content, to restore the named file from a
backup or to remove it; of records that no copy restores, --salvage; of the log, --cut-log. The rule at the
end of a line is for reports of bugs.

Examples:
  oncefs fsck /srv/volume
  oncefs fsck -d /srv/volume
  oncefs fsck -y /srv/volume")]
pub struct FsckArgs {
    /// The volume
    pub volume: PathBuf,
    /// Change nothing (the default)
    #[arg(short = 'n', conflicts_with_all = ["yes", "preen", "auto"])]
    pub no_change: bool,
    /// Repair everything that can be repaired
    #[arg(short = 'y')]
    pub yes: bool,
    /// Repair only what is safe without asking (at boot): counts, sums and the like
    #[arg(short = 'p')]
    pub preen: bool,
    /// As -p
    #[arg(short = 'a')]
    pub auto: bool,
    /// Recover what is left of damaged records that have no good copy, then repair as -y. Never done unless requested
    #[arg(long, conflicts_with_all = ["no_change", "preen", "auto"])]
    pub salvage: bool,
    /// With --salvage: give up a record file that is gone with its copy, and older records of all keys from its first to its
    /// last, which may be nearly all. Once for each such file; salvage names them
    #[arg(long, value_name = "FILE", requires = "salvage")]
    pub without: Vec<String>,
    /// Leave the damaged group of a log that keeps the volume closed out, and all groups after it, then repair as -y. What
    /// programs synced since is lost. Never done unless requested
    #[arg(long, conflicts_with_all = ["no_change", "preen", "auto"])]
    pub cut_log: bool,
    /// The device that has the blocks now, if it is not the one that mkfs was given
    #[arg(long, value_name = "PATH")]
    pub device: Option<PathBuf>,
    /// Also read every block and compare it with its checksum
    #[arg(short = 'd', long)]
    pub data: bool,
    /// Accepted for fsck(8): every check is a full one
    #[arg(short = 'f', hide = true)]
    pub force: bool,
    /// Accepted for fsck(8)
    #[arg(short = 'v', hide = true)]
    pub verbose: bool,
    /// Accepted for fsck(8): descriptor for progress
    #[arg(short = 'C', hide = true, value_name = "FD", allow_hyphen_values = true)]
    pub progress: Option<i32>,
    /// Accepted for fsck(8)
    #[arg(short = 't', hide = true)]
    pub kind: Option<String>,
}

impl FsckArgs {
    /// The most that may be repaired; None: the volume may not be changed.
    pub fn limit(&self) -> Option<Remedy> {
        match (self.yes || self.salvage || self.cut_log, self.preen || self.auto) {
            (true, _) => Some(Remedy::Asked),
            (false, true) => Some(Remedy::Safe),
            (false, false) => None,
        }
    }
}

/// Checks a volume. Returns the exit code.
pub fn run(arguments: FsckArgs) -> Outcome<u8> {
    let shown = shown(&arguments.volume);
    let volume =
        arguments.volume.canonicalize().or_fail_doing(exit::FSCK_OPERATIONAL, format!("cannot read {shown}"))?;
    refuse_mount_point(&volume)?;
    setup::keep_from_dumps();
    let parts = Store::parts_outside(&volume, arguments.device.as_deref()).map_err(|e| cannot_check(&e.into()))?;
    holders::refuse_held(&parts, exit::FSCK_OPERATIONAL)?;
    // A disk may be crafted to mislead a check. Threads inherit the confinement, so it comes before any of them.
    let ports = Store::prepare_objects(&volume).map_err(|e| cannot_check(&e.into()))?.unwrap_or_default();
    confine_check(&volume, &parts, &ports);
    // Ending now loses nothing: the next repair does what this one did not commit.
    let ended = EndSignals::block().end_process("the check was cancelled", exit::FSCK_CANCELLED);
    ended.or_fail(exit::FSCK_OPERATIONAL)?;
    let salvaged =
        if arguments.salvage { Store::salvage(&volume, &proves_itself, &arguments.without) } else { Ok(None) };
    let salvaged = salvaged.map_err(|e| cannot_check(&e.into()))?;
    let cut = if arguments.cut_log { Store::cut_log(&volume) } else { Ok(None) };
    let cut = cut.map_err(|e| cannot_check(&e.into()))?;
    let examined = examine(&volume, arguments.limit(), arguments.data, arguments.device);
    let mut findings = examined.map_err(|e| in_use::name_place(cannot_check(&e), &volume))?;
    findings.add_fixed(cut.iter().map(cut_told).collect(), u64::from(cut.is_some()));
    findings.has_lost_records = salvaged.as_ref().is_some_and(|salvaged| salvaged.gaps > 0);
    findings.add_fixed(salvaged.iter().map(salvage_told).collect(), u64::from(salvaged.is_some()));
    findings.print();
    say!("{shown}: {}", findings.summary());
    Ok(findings.exit_code())
}

/// Refuses a mount point: it is not a volume, and the advice to run mkfs would be wrong.
fn refuse_mount_point(path: &Path) -> Outcome {
    let mount = mount_table::at(path).or_fail(exit::FSCK_OPERATIONAL)?.filter(Mount::is_oncefs);
    let Some(Mount { dir, source, .. }) = mount else { return Ok(()) };
    let (dir, volume) = (shown(&dir), shown(&source));
    let text =
        format!("{dir} is where {volume} is mounted: unmount it (oncefs umount {dir}), then oncefs fsck {volume}");
    Err(Failure::new(exit::FSCK_OPERATIONAL, text))
}

fn salvage_told(salvaged: &Salvaged) -> String {
    let Salvaged { files, damaged_files, gone, gaps, given_up, records } = salvaged;
    let gone = if gone.is_empty() { String::new() } else { format!(" ({} without a trace)", gone.join(", ")) };
    format!(
        "{damaged_files} of {files} record files were damaged{gone}: {records} records were saved, {gaps} places could \
         not be read, {given_up} older records there were given up. The damaged files are in records.damaged"
    )
}

fn cut_told(cut: &CutLog) -> String {
    let CutLog { group, whole_later, is_begun } = cut;
    if !is_begun {
        return format!(
            "a place in the log was damaged and was cleared. If group {group} was there, what programs synced in it and later \
             is lost; the volume is as it was before group {group}"
        );
    }
    format!(
        "group {group} of the log could not be read: it was left out, and so were {whole_later} groups after it. What \
         programs synced in them is lost; the volume is as it was before group {group}"
    )
}

/// Damage that prevents opening the volume counts as an error left. Any other error means that the check could not run.
fn cannot_check(error: &oncefs_fs::Error) -> Failure {
    let code = match error {
        oncefs_fs::Error::Engine(Error::Corrupt { .. }) => exit::FSCK_ERRORS_LEFT,
        _ => exit::FSCK_OPERATIONAL,
    };
    Failure::new(code, error)
}

/// Checks a volume. With a limit, first repairs the faults that it allows. Without one it does not change the volume,
/// and replays the log in memory.
fn examine(
    volume: &Path,
    limit: Option<Remedy>,
    read_data: bool,
    data_device: Option<PathBuf>,
) -> oncefs_fs::Result<Findings> {
    let superblock = Store::damaged_superblock(volume);
    let options = profiles::without_worker(CHECK_MEMORY.min(memory::ram_bytes() / 4), limit.is_none());
    let options = OpenOptions { data_device, ..options };
    let store = match limit {
        None => Store::open(volume, &options)?,
        Some(_) => Store::open_for_fsck(volume, &options)?,
    };
    let mut findings = Findings::default();
    if let Some(path) = superblock {
        let what = format!("{}: it is damaged, the other superblock is sound", shown(&path));
        if limit.is_some() { findings.add_fixed(vec![what], 1) } else { findings.add_left(vec![what], 1) }
    }
    findings.left_out = store.left_out_of_log();
    let examined = examine_open(&store, limit, read_data, &mut findings);
    let closed = store.close();
    examined?;
    closed?;
    Ok(findings)
}

fn examine_open(
    store: &Arc<Store>,
    limit: Option<Remedy>,
    read_data: bool,
    findings: &mut Findings,
) -> oncefs_fs::Result<()> {
    let mut lost = Vec::new();
    let files = store.check_record_files(limit.is_some())?;
    let (mended, left) = (files.mended.len() as u64, files.left.len() as u64);
    findings.add_fixed(files.mended, mended);
    findings.add_left(files.left, left);
    if left > 0 && limit.is_none() {
        // Faults that follow from a damaged file cannot be distinguished from other damage.
        return Ok(());
    }
    if let Some(limit) = limit {
        lost = repair(store, limit, findings)?;
    }
    let mut progress = Progress::new();
    let blocks = store
        .audit(read_data, &mut |phase, done, total| progress.show(blocks_phase(phase), Step::blocks(done, total)))?;
    let names = check_names(store, &mut |phase, done, total| {
        progress.show(names_phase(phase), names_step(phase, done, total))
    })?;
    progress.end(if read_data { "read" } else { "checked" }, Step::blocks(blocks.live.0, blocks.live.0));
    (findings.stored, findings.mapped) = (blocks.live, blocks.mapped);
    findings.files = files_concerned(store, &lost, &blocks)?;
    findings.add_left(blocks.problems, blocks.problems_count);
    findings.add_bad(&blocks.bad);
    findings.add_left(names.left, names.left_count);
    Ok(())
}

/// Repairs blocks, then names. Returns the losses.
fn repair(store: &Store, limit: Remedy, findings: &mut Findings) -> oncefs_fs::Result<Vec<Fault>> {
    let mut progress = Progress::new();
    let blocks =
        store.repair(limit, &mut |phase, done, total| progress.show(blocks_phase(phase), Step::blocks(done, total)))?;
    let NameFindings { fixed: mended, fixed_count, .. } =
        fix_names(store, &SystemClock, limit, &mut |phase, done, total| {
            progress.show(names_phase(phase), names_step(phase, done, total));
        })?;
    findings.add_fixed(blocks.mended, blocks.fixed_count);
    findings.add_fixed(mended, fixed_count);
    Ok(blocks.lost)
}

fn blocks_phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Maps => "reading maps",
        Phase::Blocks => "checking blocks",
    }
}

fn names_phase(phase: NamePhase) -> &'static str {
    match phase {
        NamePhase::Names => "reading names",
        NamePhase::Inodes => "checking inodes",
        NamePhase::Maps => "comparing files with maps",
    }
}

fn names_step(phase: NamePhase, done: u64, total: u64) -> Step {
    let noun = match phase {
        NamePhase::Names | NamePhase::Inodes => "inode numbers",
        NamePhase::Maps => "files",
    };
    Step::things(noun, done, total)
}

/// A place of a map, and its fault.
struct Concern {
    map: MapId,
    first: Lbn,
    what: String,
}

/// One line for each place of a file whose content is lost or in doubt.
fn files_concerned(store: &Store, lost: &[Fault], report: &CheckReport) -> oncefs_fs::Result<Vec<String>> {
    let mut concerns: Vec<Concern> = lost.iter().chain(&report.faults).filter_map(concern_of_map).collect();
    let known = report.bad.iter().filter(|bad| bad.replacement.is_none()).map(|bad| bad.pbn);
    let damaged: Vec<Pbn> = report.faults.iter().filter_map(damaged_block).chain(known).take(PLACES_MAX).collect();
    if !damaged.is_empty() {
        let places = store.places_of(&damaged, PLACES_MAX)?;
        concerns.extend(places.into_iter().map(|(pbn, map, first)| Concern {
            map,
            first,
            what: format!("block {pbn} does not contain what was stored"),
        }));
    }
    let maps: BTreeSet<MapId> = concerns.iter().map(|concern| concern.map).collect();
    let names = names_of(store, maps)?;
    let lines = concerns.iter().map(|Concern { map, first, what }| {
        let file = names.get(map).map_or_else(|| format!("map {}", map.0), file_named);
        format!("{file}: at byte {}: {what}", Blocks(first.0).bytes())
    });
    Ok(lines.collect())
}

fn file_named(names: &FileNames) -> String {
    let FileNames { ino, paths, more } = names;
    let names: Vec<Name> = paths.iter().map(|path| Name::from(&path[..])).collect();
    if names.is_empty() { format!("inode {}, which has no name", ino.0) } else { shown_all(&names, *more).to_string() }
}

/// Names by map, up to the bound for a report.
fn names_of(store: &Store, mut maps: BTreeSet<MapId>) -> oncefs_fs::Result<BTreeMap<MapId, FileNames>> {
    let (mut names, mut bytes) = (BTreeMap::new(), 0);
    while let Some(found) = names_of_maps(store, &maps, &|| true)? {
        bytes += found.files.values().flat_map(|file| &file.paths).map(Vec::len).sum::<usize>();
        names.extend(found.files);
        match found.next {
            Some(next) if bytes < NAMES_BYTES_MAX => maps = maps.split_off(&next),
            _ => break,
        }
    }
    Ok(names)
}

fn concern_of_map(fault: &Fault) -> Option<Concern> {
    match fault {
        Fault::Outside { key, extent } => Some(Concern {
            map: key.map,
            first: key.first().plus(extent.first.into()),
            what: format!("{} blocks were outside the data area and are lost", extent.blocks),
        }),
        Fault::Leaf { key } => Some(Concern {
            map: key.map,
            first: key.first(),
            what: "the record of 1 MiB is damaged: that part cannot be read".to_owned(),
        }),
        _ => None,
    }
}

fn damaged_block(fault: &Fault) -> Option<Pbn> {
    match fault {
        Fault::Rot { pbn, .. } | Fault::Unreadable { pbn, .. } => Some(*pbn),
        _ => None,
    }
}
