//! `oncefs mkfs`: creates a volume with an empty file system.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use clap::Args;
use log::LevelFilter;
use oncefs_engine::{Copies, DataPlace, ObjectAccess, Profile, SealingKey, Store, VolumeSpec};
use oncefs_fs::{FileSystem, SystemClock};

use crate::commands::help::UNITS;
use crate::daemon::logging;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::figures::of_mount::HostSpace;
use crate::mounting::{cluster_name, key_file, options};
use crate::names::shown;
use crate::process::confinement::confine_mkfs;
use crate::process::{holders, setup};
use crate::size::Size;
use crate::{profiles, random};

/// The data area's default share of the host's free space. The rest is for the table, records and log.
const DEFAULT_SHARE: (u64, u64) = (15, 16);

/// Default sizes are whole MiB.
const DEFAULT_STEP: u64 = 1 << 20;

/// The log's share of the data area, between bounds. Replaying a larger log after a crash would take longer than a
/// mount may.
const LOG_SHARE_OF_DATA: u64 = 16;
const LOG_BYTES_MIN: u64 = 8 << 20;
const LOG_BYTES_MAX: u64 = 64 << 20;

/// Most records of an object, unless said otherwise. Ceph warns at twice as many keys.
const RECORD_KEYS_MAX: u64 = 100_000;

/// The unit of `st_blocks`.
const SECTOR: u64 = 512;

/// Caches while the root directory is made.
const MKFS_MEMORY: u64 = 64 << 20;

/// Arguments of `mkfs`.
#[derive(Debug, Args)]
#[command(after_help = format!("{}\n{UNITS}\n\nExamples:
  oncefs mkfs /srv/volume                                 as large as the free space there
  oncefs mkfs /srv/volume --size 2T                       sparse: takes up space only as it fills
  oncefs mkfs /srv/volume --data /dev/nvme1n1             blocks on a raw device, everything else in /srv/volume
  oncefs mkfs rados://POOL/NAME --experimental rados --size 10T
                                                          blocks, their table and the log in objects of a Ceph cluster", profiles::help()))]
pub struct MkfsArgs {
    /// Directory for the volume: new, empty, or left by a mkfs that did not end.
    /// rados://POOL/NAME: as --data, with a directory below /var/lib/oncefs/rados (experimental)
    pub volume: PathBuf,
    /// Size of the data area [default: 15/16 of the free space below VOLUME; all of DEVICE]
    #[arg(long, short)]
    pub size: Option<Size>,
    /// Store the blocks on this raw block device instead of in a sparse file. It must show nothing that is known, or --force destroys it.
    /// rados://POOL/NAME: in objects of a Ceph cluster (experimental)
    #[arg(long, short, value_name = "DEVICE")]
    pub data: Option<PathBuf>,
    /// The pool for the objects of the data area, which may be erasure-coded; all else stays in POOL
    #[arg(long, value_name = "POOL")]
    pub data_pool: Option<String>,
    /// The configuration file of the Ceph cluster [default: /etc/ceph/ceph.conf]
    #[arg(long, value_name = "FILE")]
    pub conf: Option<PathBuf>,
    /// The user of the Ceph cluster, without "client." [default: admin]
    #[arg(long, value_name = "USER")]
    pub id: Option<String>,
    /// rados: the records lie in objects beside the blocks, at most 100000 in each; rados:N: at most N (16 to 200000)
    /// [default: in the volume's directory]
    #[arg(long, value_name = "PLACE", value_parser = records_place)]
    pub records: Option<u64>,
    /// With --records rados: the key that seals the volume's secret in the cluster, made if FILE is missing. Other
    /// machines need a copy [default: /etc/oncefs/keys/POOL/NAME.key]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Allow what is not finished: rados, blocks in objects of a Ceph cluster (docs/beyond.md)
    #[arg(long, value_name = "FEATURE", value_parser = ["rados"])]
    pub experimental: Vec<String>,
    /// How the volume finds and shares blocks; see below
    #[arg(long, value_name = "NAME", default_value = Profile::default().name(), value_parser = options::profile)]
    pub profile: Profile,
    /// Size of the log [default: a sixteenth of the data area, 8M to 64M]
    #[arg(long, value_name = "SIZE")]
    pub log_size: Option<Size>,
    /// Take DEVICE even if it shows a file system, a partition table or another signature, and destroy what is on it
    #[arg(long)]
    pub force: bool,
    /// The volume's name in a cluster, if the command line has one.
    #[arg(skip)]
    pub name: Option<PathBuf>,
    /// Copies to keep of the record files, which hold names and maps: 1 or 2 [default: as the profile says]
    #[arg(long, value_name = "NUMBER", value_parser = copies)]
    pub copies: Option<Copies>,
    /// Print nothing on success
    #[arg(long, short)]
    pub quiet: bool,
}

/// Makes a volume.
pub fn run(arguments: MkfsArgs) -> Outcome {
    let arguments = in_cluster(arguments)?;
    let spec = spec(&arguments)?;
    if let (Some(_), Some(parent)) = (&arguments.name, arguments.volume.parent()) {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
        made.or_fail_doing(exit::FAILED, format!("cannot create the directory {}", shown(parent)))?;
    }
    if let DataPlace::Device(device) = &spec.data {
        check_device(device)?;
    }
    setup::make_private_files();
    setup::keep_from_dumps();
    // Only the daemon has a log. What would be a warning there concerns whoever makes the volume.
    logging::start(&logging::Target::Stderr, LevelFilter::Warn).or_fail_doing(exit::FAILED, "cannot print warnings")?;
    let place = Place::at(&arguments.volume);
    let key = sealing_key(&arguments, &spec)?;
    confine(&arguments, &spec, place)?;
    make(&arguments, &spec, key.as_ref()).map_err(|e| {
        if let Err(left) = place.restore(&arguments.volume) {
            tell!("oncefs: cannot remove the incomplete volume {}: {left}", shown(&arguments.volume));
        }
        failure(&e, &arguments.volume)
    })?;
    if !arguments.quiet {
        print_next_step(&arguments, &spec, key.as_ref());
    }
    Ok(())
}

/// The key for a volume whose superblock goes into its cluster. A later mkfs of the same name takes the same key.
fn sealing_key(arguments: &MkfsArgs, spec: &VolumeSpec) -> Outcome<Option<SealingKey>> {
    let access = match &spec.data {
        DataPlace::Objects(access) if access.record_keys_max.is_some() => access,
        _ if arguments.key_file.is_some() => {
            return Err(Failure::new(exit::FAILED, "--key-file is for a volume with --records rados"));
        }
        _ => return Ok(None),
    };
    let file = arguments.key_file.clone().unwrap_or_else(|| key_file::of_volume(access));
    let file = std::path::absolute(&file).or_fail_doing(exit::FAILED, shown(&file))?;
    key_file::read_or_make(&file).map(Some)
}

/// Puts the directory of a volume with a name in a cluster in the place of that name.
fn in_cluster(arguments: MkfsArgs) -> Outcome<MkfsArgs> {
    let Some(directory) = cluster_name::directory_of(&arguments.volume)? else { return Ok(arguments) };
    if arguments.data.is_some() {
        let name = shown(&arguments.volume);
        return Err(Failure::new(exit::FAILED, format!("the blocks of {name} go where it says: leave out --data")));
    }
    let name = Some(arguments.volume);
    Ok(MkfsArgs { volume: directory, data: name.clone(), name, ..arguments })
}

/// Confines this process to the device and the volume's directory, which it creates first. Does not touch a directory
/// that is already in use.
fn confine(arguments: &MkfsArgs, spec: &VolumeSpec, place: Place) -> Outcome {
    let (devices, ports) = match &spec.data {
        DataPlace::File => (Vec::new(), Vec::new()),
        DataPlace::Device(device) => (vec![device.clone()], Vec::new()),
        DataPlace::Objects(access) => (Vec::new(), Store::prepare_access(access).or_fail(exit::FAILED)?),
    };
    if place == Place::Taken {
        return Ok(());
    }
    if place == Place::Free {
        DirBuilder::new()
            .mode(0o700)
            .create(&arguments.volume)
            .or_fail_doing(exit::FAILED, format!("cannot create the directory {}", shown(&arguments.volume)))?;
    }
    let volume = arguments.volume.canonicalize().or_fail_doing(exit::FAILED, shown(&arguments.volume))?;
    confine_mkfs(&volume, &devices, &ports);
    Ok(())
}

fn make(arguments: &MkfsArgs, spec: &VolumeSpec, key: Option<&SealingKey>) -> oncefs_fs::Result<()> {
    let failed = |e| oncefs_engine::Error::io("cannot read random numbers", e);
    let (random, nonce) = (random::bytes().map_err(failed)?, random::bytes().map_err(failed)?);
    let unfinished = Store::begin_format(&arguments.volume, spec, random, arguments.force)?;
    let store = Store::open_unfinished(&unfinished, &profiles::without_worker(MKFS_MEMORY, false))?;
    FileSystem::format(&store, &SystemClock)?;
    store.close()?;
    // The objects are free then.
    drop(store);
    match key {
        Some(key) => Store::finish_in_cluster(unfinished, key, nonce)?,
        None => unfinished.finish()?,
    }
    Ok(())
}

fn failure(error: &oncefs_fs::Error, volume: &Path) -> Failure {
    match error {
        oncefs_fs::Error::NoSpace | oncefs_fs::Error::Engine(oncefs_engine::Error::HostFull { .. }) => {
            let text = format!("no space for the volume {}: free some space, or choose another place", shown(volume));
            Failure::new(exit::FAILED, text)
        }
        oncefs_fs::Error::Engine(oncefs_engine::Error::InTheWay(what)) => {
            Failure::new(exit::FAILED, way_out(what, volume))
        }
        other => Failure::new(exit::FAILED, other),
    }
}

/// A message about the thing at the volume's place, with the way out. It advises to delete only an old volume: any other
/// directory may be the wrong one.
fn way_out(what: &str, volume: &Path) -> String {
    let volume = shown(volume);
    match what.strip_suffix(" or remove it first") {
        Some(what) if what.contains("is a volume already") => {
            format!("{what}; to delete the old volume with all its files, unmount it and run rm -r {volume}")
        }
        Some(what) => format!("{what}, such as a new directory in it"),
        None => what.to_owned(),
    }
}

/// The state of the volume's path before mkfs. A failed mkfs restores it, so that it does not block the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Free,
    EmptyDirectory,
    /// Left by an interrupted mkfs, or in use by a running one. The next mkfs continues from there.
    Begun,
    Taken,
}

impl Place {
    fn at(volume: &Path) -> Self {
        match std::fs::symlink_metadata(volume) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Self::Free,
            Ok(found) if found.is_dir() && volume.read_dir().is_ok_and(|mut entries| entries.next().is_none()) => {
                Self::EmptyDirectory
            }
            Ok(_) if Store::is_unfinished(volume) => Self::Begun,
            _ => Self::Taken,
        }
    }

    fn restore(self, volume: &Path) -> io::Result<()> {
        if matches!(self, Self::Begun | Self::Taken) || !volume.exists() {
            return Ok(());
        }
        std::fs::remove_dir_all(volume)?;
        if self == Self::EmptyDirectory { std::fs::create_dir(volume) } else { Ok(()) }
    }
}

fn spec(arguments: &MkfsArgs) -> Outcome<VolumeSpec> {
    let data = data_place(arguments)?;
    let data_bytes = match (arguments.size, &data) {
        (Some(size), _) => Some(size.0),
        (None, DataPlace::Device(_)) => None,
        (None, DataPlace::Objects(_)) => {
            return Err(Failure::new(exit::FAILED, "a volume in objects has any size: give one with --size"));
        }
        (None, DataPlace::File) => Some(default_size(free_space_at(&arguments.volume)?)),
    };
    let log_bytes = arguments.log_size.map_or_else(|| default_log(data_bytes), |size| size.0);
    Ok(VolumeSpec { data_bytes, data, profile: arguments.profile, log_bytes, copies: arguments.copies })
}

/// Where the blocks go. Objects need a cluster, and the word that their user knows that they are an experiment.
fn data_place(arguments: &MkfsArgs) -> Outcome<DataPlace> {
    let Some(data) = &arguments.data else {
        let needing = [
            ("--conf", arguments.conf.is_some()),
            ("--id", arguments.id.is_some()),
            ("--records", arguments.records.is_some()),
            ("--data-pool", arguments.data_pool.is_some()),
            ("--force", arguments.force),
        ];
        let alone = needing.into_iter().find_map(|(option, is_given)| is_given.then_some(option));
        let refused = |option| Failure::new(exit::USAGE, format!("{option} is for a volume with --data"));
        return alone.map_or(Ok(DataPlace::File), |option| Err(refused(option)));
    };
    let address = data.to_str().filter(|text| ObjectAccess::is_meant(text));
    let Some(address) = address else {
        let has_other = arguments.conf.is_some() || arguments.id.is_some() || arguments.records.is_some();
        if has_other || arguments.data_pool.is_some() {
            let text = "--conf, --id, --records and --data-pool are for --data rados://POOL/NAME";
            return Err(Failure::new(exit::FAILED, text));
        }
        return std::path::absolute(data).map(DataPlace::Device).or_fail(exit::FAILED);
    };
    if arguments.experimental.is_empty() {
        let text =
            "blocks in objects of a cluster are an experiment (docs/beyond.md): add --experimental rados to try it";
        return Err(Failure::new(exit::FAILED, text));
    }
    let mut access = ObjectAccess::parse(address).or_fail(exit::FAILED)?;
    if let Some(conf) = &arguments.conf {
        access.conf = conf.canonicalize().or_fail_doing(exit::FAILED, shown(conf))?;
    }
    access.id = arguments.id.clone().unwrap_or(access.id);
    access.record_keys_max = arguments.records.or(access.record_keys_max);
    if let Some(pool) = &arguments.data_pool {
        access = access.with_data_pool(pool).or_fail(exit::FAILED)?;
    }
    Ok(DataPlace::Objects(access))
}

/// Most records of an object.
fn records_place(value: &str) -> Result<u64, String> {
    match value.split_once(':') {
        None if value == "rados" => Ok(RECORD_KEYS_MAX),
        Some(("rados", keys)) => ObjectAccess::record_keys(keys).map_err(|error| error.to_string()),
        _ => Err("give rados or rados:N".to_owned()),
    }
}

fn copies(value: &str) -> Result<Copies, String> {
    value.parse().ok().and_then(Copies::from_number).ok_or_else(|| "give 1 or 2".to_owned())
}

fn default_size(free_bytes: u64) -> u64 {
    let (part, whole) = DEFAULT_SHARE;
    free_bytes / whole * part / DEFAULT_STEP * DEFAULT_STEP
}

fn default_log(data_bytes: Option<u64>) -> u64 {
    data_bytes.map_or(LOG_BYTES_MAX, |bytes| (bytes / LOG_SHARE_OF_DATA).clamp(LOG_BYTES_MIN, LOG_BYTES_MAX))
}

/// The free space of the file system that will hold `volume`.
fn free_space_at(volume: &Path) -> Outcome<u64> {
    let place = existing_ancestor(volume).or_fail_doing(exit::FAILED, shown(volume))?;
    let space = HostSpace::at(&place);
    let space = space.or_fail_doing(exit::FAILED, format!("cannot read the free space at {}", shown(&place)))?;
    Ok(space.available)
}

fn existing_ancestor(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let existing = path.ancestors().find(|p| p.exists()).map(Path::to_path_buf);
    existing.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// Refuses anything but a block device, and a device in use, before anything is created.
fn check_device(device: &Path) -> Outcome {
    let shown = shown(device);
    let kind =
        std::fs::metadata(device).or_fail_doing(exit::FAILED, format!("cannot use the device {shown}"))?.file_type();
    if !kind.is_block_device() {
        let text = format!("{shown} is not a block device: give one, or omit --data to store the blocks in the volume");
        return Err(Failure::new(exit::FAILED, text));
    }
    if !setup::is_root() {
        return Err(Failure::new(exit::FAILED, format!("writing to {shown} needs root: use sudo")));
    }
    holders::refuse_held(&[device.to_owned()], exit::FAILED)
}

fn print_next_step(arguments: &MkfsArgs, spec: &VolumeSpec, key: Option<&SealingKey>) {
    let volume = shown(arguments.name.as_ref().unwrap_or(&arguments.volume));
    let size = spec.data_bytes.map_or_else(String::new, |bytes| format!(" of {}", Size(bytes)));
    let device = arguments.data.as_ref().filter(|_| arguments.name.is_none());
    let place = device.map_or_else(String::new, |device| format!(" on {}", shown(device)));
    say!("created the volume {volume}{size}{place}; mount it with: oncefs mount {volume} DIR");
    if let Some(key) = key {
        say!("a machine that is to mount it too needs the key of its secret: copy {} there", key.file());
    }
    if let Ok(taken) = bytes_taken(&arguments.volume) {
        let (taken, log) = (Size(taken), Size(spec.log_bytes));
        say!("while it is empty it takes {taken} of its host, of which {log} are the log (--log-size)");
    }
    if let (DataPlace::File, Some(bytes), Ok(host)) = (&spec.data, spec.data_bytes, HostSpace::at(&arguments.volume)) {
        host.too_small_for(&arguments.volume, bytes).iter().for_each(|note| say!("{note}"));
    }
}

/// The bytes that a directory takes with everything in it.
fn bytes_taken(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in directory.read_dir()? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += about.blocks() * SECTOR;
        if about.is_dir() {
            bytes += bytes_taken(&entry.path())?;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_size_leaves_a_sixteenth_of_the_host_free() {
        assert_eq!(default_size(16 << 30), 15 << 30);
        assert_eq!(default_size((16 << 30) + 12345), 15 << 30);
        assert_eq!(default_size(0), 0);
    }

    #[test]
    fn what_a_volume_takes_counts_directories_and_not_holes() {
        let dir = tempfile::tempdir().unwrap();
        let empty = bytes_taken(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join("records")).unwrap();
        std::fs::File::create(dir.path().join("data")).unwrap().set_len(1 << 30).unwrap();
        std::fs::write(dir.path().join("records/log"), vec![7; 1 << 20]).unwrap();
        let taken = bytes_taken(dir.path()).unwrap();
        assert!(empty == 0 && (1 << 20..2 << 20).contains(&taken), "{empty} and {taken} bytes");
    }

    #[test]
    fn the_log_is_a_bounded_share_of_the_data_area() {
        assert_eq!(default_log(Some(10 << 40)), LOG_BYTES_MAX);
        assert_eq!(default_log(Some(512 << 20)), 32 << 20);
        assert_eq!(default_log(Some(64 << 20)), LOG_BYTES_MIN);
        assert_eq!(default_log(None), LOG_BYTES_MAX);
    }

    #[test]
    fn only_an_old_volume_is_advised_to_be_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let (path, spec) = (
            dir.path(),
            VolumeSpec {
                data_bytes: Some(64 << 20),
                data: DataPlace::File,
                profile: Profile::default(),
                log_bytes: LOG_BYTES_MIN,
                copies: None,
            },
        );
        for (file, advice) in [("superblock", "run rm -r"), ("letter", "is not empty: choose another path, such as")] {
            std::fs::write(path.join(file), "").unwrap();
            let refused = Store::begin_format(path, &spec, [0; 64], false).err().unwrap();
            let text = failure(&refused.into(), path).message;
            assert!(text.contains(advice) && !text.contains("remove it"), "{text}");
            std::fs::remove_file(path.join(file)).unwrap();
        }
    }

    #[test]
    fn a_failed_mkfs_leaves_the_place_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (free, empty, taken) = (dir.path().join("free"), dir.path().join("empty"), dir.path().join("taken"));
        std::fs::create_dir(&empty).unwrap();
        std::fs::create_dir(&taken).unwrap();
        std::fs::write(taken.join("letter"), "dear").unwrap();
        let places = [&free, &empty, &taken].map(|path| (path, Place::at(path)));
        for path in [&free, &empty] {
            std::fs::create_dir_all(path).unwrap();
            std::fs::write(path.join("table"), "half").unwrap();
        }
        for (path, place) in places {
            place.restore(path).unwrap();
        }
        assert!(!free.exists());
        assert_eq!(Place::at(&empty), Place::EmptyDirectory);
        assert!(taken.join("letter").exists());
    }

    #[test]
    fn the_free_space_is_that_of_the_nearest_existing_directory() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(existing_ancestor(&dir.path().join("a/b/c")).unwrap(), dir.path());
        assert!(free_space_at(&dir.path().join("a/b")).unwrap() > 0);
    }
}
