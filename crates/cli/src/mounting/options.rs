//! The `-o` string: mount(8)'s standard options, oncefs's own, and those that only mount(8) reads. Refuses unknown
//! options by name.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use log::LevelFilter;
use oncefs_engine::{Profile, settings};
use oncefs_fuse::Transport;
use oncefs_toolbox::{Column, Table};

use crate::profiles;
use crate::size::Size;
use crate::text::nearest;

/// No set-user-id, no device files.
const NO_PRIVILEGES: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV;

/// Flags of mount(2) by option: name, flags set, flags cleared.
const FLAGS: &[(&str, libc::c_ulong, libc::c_ulong)] = &[
    ("defaults", 0, 0),
    ("ro", libc::MS_RDONLY, 0),
    ("rw", 0, libc::MS_RDONLY),
    ("suid", 0, libc::MS_NOSUID),
    ("nosuid", libc::MS_NOSUID, 0),
    ("dev", 0, libc::MS_NODEV),
    ("nodev", libc::MS_NODEV, 0),
    ("exec", 0, libc::MS_NOEXEC),
    ("noexec", libc::MS_NOEXEC, 0),
    // A mount by users gets the restrictions of mount(8), unless later options lift them.
    ("user", NO_PRIVILEGES | libc::MS_NOEXEC, 0),
    ("users", NO_PRIVILEGES | libc::MS_NOEXEC, 0),
    ("owner", NO_PRIVILEGES, 0),
    ("group", NO_PRIVILEGES, 0),
    ("async", 0, libc::MS_SYNCHRONOUS),
    ("sync", libc::MS_SYNCHRONOUS, 0),
    ("dirsync", libc::MS_DIRSYNC, 0),
    ("atime", 0, libc::MS_NOATIME),
    ("noatime", libc::MS_NOATIME, libc::MS_RELATIME | libc::MS_STRICTATIME),
    ("relatime", libc::MS_RELATIME, libc::MS_NOATIME | libc::MS_STRICTATIME),
    ("norelatime", 0, libc::MS_RELATIME),
    ("strictatime", libc::MS_STRICTATIME, libc::MS_NOATIME | libc::MS_RELATIME),
    ("nostrictatime", 0, libc::MS_STRICTATIME),
    ("diratime", 0, libc::MS_NODIRATIME),
    ("nodiratime", libc::MS_NODIRATIME, 0),
    ("silent", libc::MS_SILENT, 0),
    ("loud", 0, libc::MS_SILENT),
];

/// Options for mount(8) or systemd, options always in force, and options without a meaning here.
const IGNORED: &[&str] = &[
    "auto",
    "noauto",
    "fail",
    "nofail",
    "_netdev",
    "nouser",
    "nousers",
    "noowner",
    "nogroup",
    "allow_other",
    "default_permissions",
    "nomand",
    "acl",
    "user_xattr",
    "discard",
    "lazytime",
    "nolazytime",
];

/// Ignored with any value. The last four come from /proc/mounts, where mount(8) finds them for a remount.
const IGNORED_PREFIXES: &[&str] =
    &["x-", "X-", "user=", "uhelper=", "helper=", "comment=", "user_id=", "group_id=", "max_read=", "blksize="];

/// Options with a value that are not settings.
pub const VALUED: [&str; 11] = [
    "data",
    "key_file",
    "memory",
    "profile",
    "transport",
    "threads",
    "max_write",
    "metrics",
    "loglevel",
    "logfile",
    "disk_reserve",
];

/// See `MountOptions::until_idle`.
const UNTIL_IDLE: &str = "until_idle";

/// See `MountOptions::standby`.
const STANDBY: &str = "standby";

/// A setting's name and value.
pub type Setting = (String, String);

/// The options of `-o`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// `MS_...` flags of mount(2).
    pub kernel_flags: libc::c_ulong,
    /// Change the flags of an existing mount.
    pub remount: bool,
    /// A missing volume is not an error.
    pub nofail: bool,
    /// fstab lets users mount it.
    pub by_users: bool,
    /// The mount ends by itself once no file in it has been open for some seconds.
    pub until_idle: bool,
    /// If another process has the volume in objects, the mount waits until it can take over.
    pub standby: bool,
    /// The device that now has the blocks, if it is not the one given to mkfs.
    pub data_device: Option<PathBuf>,
    /// The key of the volume's secret in its cluster. Only the command that starts the daemon reads it.
    pub key_file: Option<PathBuf>,
    /// Memory for caches and hints.
    pub memory: Option<u64>,
    /// The profile for this mount, instead of the volume's own.
    pub profile: Option<Profile>,
    /// Settings that override the profile's, in this order.
    pub settings: Vec<Setting>,
    /// How requests come from the kernel.
    pub transport: Transport,
    /// Most threads that serve requests over `/dev/fuse`.
    pub threads: Option<usize>,
    /// Largest request of the kernel.
    pub max_write: Option<u32>,
    /// Where to answer Prometheus.
    pub metrics: Option<SocketAddr>,
    /// How much room disks leave to files, while they wait for more. None: a share of the volume.
    pub disk_reserve: Option<u64>,
    /// Least severity to log.
    pub log_level: LevelFilter,
    /// Log to this file instead of syslog.
    pub log_file: Option<PathBuf>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            kernel_flags: 0,
            remount: false,
            nofail: false,
            by_users: false,
            until_idle: false,
            standby: false,
            data_device: None,
            key_file: None,
            memory: None,
            profile: None,
            settings: Vec::new(),
            transport: Transport::default(),
            threads: None,
            max_write: None,
            metrics: None,
            disk_reserve: None,
            log_level: LevelFilter::Info,
            log_file: None,
        }
    }
}

impl MountOptions {
    /// Whether the mount is read-only.
    pub fn read_only(&self) -> bool {
        self.kernel_flags & libc::MS_RDONLY != 0
    }

    /// The names of given options that are fixed for the life of a mount and differ from those that it was mounted
    /// with.
    pub fn fixed_otherwise(&self, mounted: &Self) -> Vec<&'static str> {
        let default = Self::default();
        let is_other = |given: bool, same: bool| given && !same;
        let other = [
            (is_other(self.data_device.is_some(), self.data_device == mounted.data_device), "data"),
            (is_other(self.memory.is_some(), self.memory == mounted.memory), "memory"),
            (is_other(self.profile.is_some(), self.profile == mounted.profile), "profile"),
            (is_other(self.transport != default.transport, self.transport == mounted.transport), "transport"),
            (is_other(self.threads.is_some(), self.threads == mounted.threads), "threads"),
            (is_other(self.max_write.is_some(), self.max_write == mounted.max_write), "max_write"),
            (is_other(self.metrics.is_some(), self.metrics == mounted.metrics), "metrics"),
            (is_other(self.disk_reserve.is_some(), self.disk_reserve == mounted.disk_reserve), "disk_reserve"),
            (is_other(self.log_level != default.log_level, self.log_level == mounted.log_level), "loglevel"),
            (is_other(self.log_file.is_some(), self.log_file == mounted.log_file), "logfile"),
        ];
        other.into_iter().filter(|(is_other, _)| *is_other).map(|(_, name)| name).collect()
    }

    /// Applies a comma-separated list. The last of contradicting options wins.
    pub fn apply(&mut self, list: &str) -> Result<(), String> {
        list.split(',').filter(|option| !option.is_empty()).try_for_each(|option| self.apply_one(option))
    }

    fn apply_one(&mut self, option: &str) -> Result<(), String> {
        self.nofail = (self.nofail || option == "nofail") && option != "fail";
        self.by_users |= ["user", "users", "owner", "group"].contains(&option);
        if let Some((_, set, clear)) = FLAGS.iter().find(|(name, ..)| *name == option) {
            self.kernel_flags = (self.kernel_flags & !clear) | set;
            return Ok(());
        }
        if IGNORED.contains(&option) || IGNORED_PREFIXES.iter().any(|p| option.starts_with(p)) {
            return Ok(());
        }
        match option.split_once('=') {
            None if option == "remount" => self.remount = true,
            None if option == UNTIL_IDLE => self.until_idle = true,
            None if option == STANDBY => self.standby = true,
            Some(("data", value)) => self.data_device = Some(absolute("data", value)?),
            Some(("key_file", value)) => self.key_file = Some(absolute("key_file", value)?),
            Some(("memory", value)) => self.memory = Some(memory(value)?),
            Some(("profile", value)) => self.profile = Some(profile(value)?),
            Some(("transport", value)) => {
                self.transport = value.parse().map_err(|e| format!("transport={value}: {e}"))?
            }
            Some(("threads", value)) => self.threads = Some(threads(value)?),
            Some(("max_write", value)) => self.max_write = Some(max_write(value)?),
            Some(("metrics", value)) => self.metrics = Some(address(value)?),
            Some(("disk_reserve", value)) => self.disk_reserve = Some(disk_reserve(value)?),
            Some(("loglevel", value)) => self.log_level = log_level(value)?,
            Some(("logfile", value)) => self.log_file = Some(absolute("logfile", value)?),
            Some((name, _)) if settings::is_setting(name) => self.settings.push(setting(option)?),
            _ => return Err(unknown(option)),
        }
        Ok(())
    }

    /// The options as a list, for the daemon's command line. The log file is passed separately, because it may contain
    /// a comma.
    pub fn to_list(&self) -> String {
        let mut list: Vec<String> = FLAGS
            .iter()
            .filter(|(_, set, _)| set.count_ones() == 1 && self.kernel_flags & set == *set)
            .map(|(name, ..)| (*name).to_owned())
            .collect();
        list.extend(self.until_idle.then(|| UNTIL_IDLE.to_owned()));
        list.extend(self.standby.then(|| STANDBY.to_owned()));
        // It came as text.
        let data_device = self.data_device.as_ref().and_then(|device| device.to_str());
        list.extend(data_device.map(|device| format!("data={device}")));
        list.extend(self.memory.map(|bytes| format!("memory={bytes}")));
        if self.transport != Transport::default() {
            list.push(format!("transport={}", self.transport.name()));
        }
        list.extend(self.threads.map(|n| format!("threads={n}")));
        list.extend(self.max_write.map(|bytes| format!("max_write={bytes}")));
        list.extend(self.metrics.map(|address| format!("metrics={address}")));
        list.extend(self.disk_reserve.map(|bytes| format!("disk_reserve={bytes}")));
        list.extend(self.profile.map(|profile| format!("profile={}", profile.name())));
        list.extend(self.settings.iter().map(|(name, value)| format!("{name}={value}")));
        list.push(format!("loglevel={}", self.log_level.as_str().to_lowercase()));
        list.join(",")
    }
}

const HELP: &str = "\
Options for -o, comma-separated:
  ro rw noatime relatime strictatime nodiratime suid nosuid dev nodev exec noexec
  sync dirsync remount               as in mount(8); also nofail, _netdev, x-...
  acl user_xattr discard             always in force
  until_idle                         unmount by itself once no file has been open for 3 seconds
  standby                            wait while another process has the volume in objects, then take over
                                     (experimental: docs/beyond.md)
  disk=NAME  mkfs=ext4|xfs           mount the file system on a disk of the volume, made first if the disk is empty; the
                                     volume's mount stays out of sight (experimental: docs/disks.md)
  wait=SECONDS                       how long writes of a disk wait for room on a full volume [default: 60]
  disk_reserve=SIZE                  room that disks leave to files while they wait for more, at most half of the volume
                                     [default: 1/128 of the volume, at most 64M]
  disk_device=KIND                   the device of a disk: loop, or ublk (experimental) [default: loop]
  data=DEVICE                        the device that has the blocks now, if it is not the one that mkfs was given
  key_file=FILE                      the key of a volume's secret in its cluster, if this machine has never seen the
                                     volume [default: /etc/oncefs/keys/POOL/NAME.key]
  memory=SIZE                        memory for caches and hints
                                     [default: edge 16M, smartdedup 64M, others 1/8 of RAM, 64M to 4G]
  transport=WAY                      how requests come from the kernel: rings (io_uring), classic (/dev/fuse), or
                                     auto: rings where the kernel has them and memory allows [default: auto]
  threads=N                          threads that serve requests over /dev/fuse, at most
                                     [default: edge 2, others twice the CPUs, 4 to 8]
  max_write=SIZE                     largest request from the kernel, up to 16M [default: edge 256K, others 1M]
  metrics=ADDRESS:PORT               answer Prometheus there, over HTTP; a port alone is one of 127.0.0.1
  loglevel=LEVEL  logfile=FILE       off, error, warn, info, debug, trace [default: info, to syslog]
";
/// Column in which the descriptions of options begin, after the longest setting.
const HELP_INDENT: u16 = 37;
/// Longest description in one line.
const HELP_WIDTH: usize = 120 - HELP_INDENT as usize;

/// The options of mount(8) without a value that have an effect, for completions.
pub fn flag_names() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().map(|(name, ..)| *name)
}

/// Every option with an effect in oncefs, for help texts.
pub fn help() -> String {
    let mut options = help_table();
    let what = "profile of this mount, instead of the volume's:";
    add_help(&mut options, "  profile=NAME", what, &profiles::names());
    let mut table = help_table();
    for (name, range, what, live) in settings::descriptions() {
        let mark = if live { ' ' } else { '*' };
        add_help(&mut table, &format!("{mark} {name}=VALUE"), what, &format!("({range})"));
    }
    let head = "Settings for -o, overriding the profile (oncefs tune changes those without * later):";
    format!("{HELP}{}\n{head}\n{}", options.plain(), table.plain())
}

/// Options and their descriptions.
fn help_table() -> Table {
    Table::of([Column::left(HELP_INDENT - 2), Column::left(0)])
}

/// Adds an option in as many rows as its description needs. Its range stays in one row.
fn add_help(table: &mut Table, option: &str, what: &str, range: &str) {
    let mut line = String::new();
    let mut option = option.to_owned();
    for word in what.split(' ').chain([range]) {
        if !line.is_empty() && line.len() + 1 + word.len() > HELP_WIDTH {
            table.row(vec![std::mem::take(&mut option), std::mem::take(&mut line)]);
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    table.row(vec![option, line]);
}

/// Why an option is refused, with what was probably meant.
fn unknown(option: &str) -> String {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    let plain = || FLAGS.iter().map(|(name, ..)| *name).chain(IGNORED.iter().copied()).chain(["remount", UNTIL_IDLE]);
    if VALUED.contains(&name) || settings::is_setting(name) {
        return format!("mount option '{name}' has no value: write {name}=VALUE");
    }
    if plain().any(|other| other == name) {
        return format!("mount option '{name}' takes no value: write {name} alone");
    }
    let meant = nearest(name, plain().chain(VALUED).chain(setting_names()));
    let hint = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
    format!("unknown mount option '{option}': {hint}see oncefs mount --help")
}

fn setting_names() -> impl Iterator<Item = &'static str> {
    settings::descriptions().map(|(name, ..)| name)
}

/// Why a setting is refused that does not exist, with what was probably meant.
pub fn unknown_setting(name: &str) -> String {
    match nearest(name, setting_names()) {
        Some(meant) => format!("there is no setting '{name}': did you mean {meant}?"),
        None => format!("there is no setting '{name}': oncefs tune DIR shows all"),
    }
}

/// The least memory with which caches still help.
const MEMORY_MIN: u64 = 16 << 20;

/// `memory=SIZE`.
pub fn memory(value: &str) -> Result<u64, String> {
    match value.parse::<Size>()?.0 {
        bytes if bytes < MEMORY_MIN => Err(format!("memory={value} is too little: use at least {}", Size(MEMORY_MIN))),
        bytes => Ok(bytes),
    }
}

/// `profile=NAME`.
pub fn profile(value: &str) -> Result<Profile, String> {
    Profile::from_name(value).ok_or_else(|| format!("unknown profile '{value}': use one of {}", profiles::names()))
}

/// `NAME=VALUE` of any setting. A former name is replaced by the present one.
pub fn setting(text: &str) -> Result<Setting, String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!("'{text}' has no value: write {text}=VALUE"));
    };
    if !settings::is_setting(name) {
        return Err(unknown_setting(name));
    }
    settings::check(name, value).map_err(|e| e.to_string())?;
    Ok((settings::current_name(name).to_owned(), value.to_owned()))
}

/// `fingerprints=WHEN`.
pub fn fingerprints(value: &str) -> Result<Setting, String> {
    setting(&format!("fingerprints={value}"))
}

/// `schedule=WHEN`.
pub fn schedule(value: &str) -> Result<Setting, String> {
    setting(&format!("schedule={value}"))
}

/// `threads=N`.
pub fn threads(value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(n @ 1..=64) => Ok(n),
        _ => Err(format!("threads={value} is out of range: use 1 to 64")),
    }
}

/// `max_write=SIZE`: whole pages.
fn max_write(value: &str) -> Result<u32, String> {
    match value.parse::<Size>()?.0 {
        bytes if (4096..=16 << 20).contains(&bytes) && bytes % 4096 == 0 => Ok(bytes as u32),
        _ => Err(format!("max_write={value} is out of range: use a multiple of 4K from 4K to 16M")),
    }
}

/// `disk_reserve=SIZE`; 0: none.
fn disk_reserve(value: &str) -> Result<u64, String> {
    value.parse::<Size>().map(|size| size.0).map_err(|why| format!("disk_reserve={value}: {why}"))
}

/// `metrics=ADDRESS:PORT`, or a port of this machine alone.
pub fn address(value: &str) -> Result<SocketAddr, String> {
    let local = || value.parse().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    value.parse().or_else(|_| local()).map_err(|_| {
        format!("metrics={value} is wrong: use a port up to 65535, or ADDRESS:PORT such as 127.0.0.1:9477")
    })
}

/// `loglevel=LEVEL`.
pub fn log_level(value: &str) -> Result<LevelFilter, String> {
    value.parse().map_err(|_| format!("loglevel={value} is unknown: use off, error, warn, info, debug or trace"))
}

fn absolute(name: &str, value: &str) -> Result<PathBuf, String> {
    if value.starts_with('/') {
        Ok(PathBuf::from(value))
    } else {
        Err(format!("{name}={value}: give an absolute path"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &str) -> Result<MountOptions, String> {
        let mut options = MountOptions::default();
        options.apply(list).map(|()| options)
    }

    #[test]
    fn fstab_lines_of_every_day_are_accepted() {
        let options = parsed(
            "defaults,nofail,_netdev,x-systemd.automount,user,noexec,nosuid,nodev,comment=home,acl,discard,lazytime",
        )
        .unwrap();
        assert_eq!(options.kernel_flags, libc::MS_NOEXEC | libc::MS_NOSUID | libc::MS_NODEV);
    }

    #[test]
    fn what_users_may_mount_carries_no_privileges() {
        assert_eq!(parsed("user").unwrap().kernel_flags, libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC);
        assert_eq!(parsed("owner").unwrap().kernel_flags, libc::MS_NOSUID | libc::MS_NODEV);
        assert_eq!(parsed("users,exec,suid,dev").unwrap().kernel_flags, 0);
    }

    #[test]
    fn of_contradicting_options_the_last_one_holds() {
        assert!(!parsed("ro,rw").unwrap().read_only());
        assert!(parsed("rw,ro").unwrap().read_only());
        assert_eq!(parsed("noatime,relatime").unwrap().kernel_flags, libc::MS_RELATIME);
        assert_eq!(parsed("strictatime,noatime").unwrap().kernel_flags, libc::MS_NOATIME);
    }

    #[test]
    fn an_unknown_option_is_refused_by_name() {
        assert!(parsed("rw,checksum=crc").unwrap_err().contains("'checksum=crc'"));
        for (option, hint) in [
            ("memory", "'memory' has no value: write memory=VALUE"),
            ("worker", "'worker' has no value"),
            ("ro=1", "'ro' takes no value"),
            ("wroker=always", "did you mean worker? see oncefs mount --help"),
            ("nofial", "did you mean nofail?"),
            ("memroy=1G", "did you mean memory?"),
            ("metrics=99999", "a port up to 65535"),
        ] {
            let error = parsed(option).unwrap_err();
            assert!(error.contains(hint), "{option}: {error}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        for (list, hint) in [
            ("memory=1M", "at least 16.0 MiB"),
            ("memory=lots", "such as 512M"),
            ("profile=turbo", "lrlfs, smartdedup, edge, desktop, server, idedup"),
            ("fingerprints=never", "eager, lazy, auto"),
            ("hint_memory=1K", "4K to"),
            ("inline=", "adaptive"),
            ("schedule=nights", "22:00-06:00"),
            ("transport=smoke", "auto, rings, or classic"),
            ("threads=0", "1 to 64"),
            ("threads=65", "1 to 64"),
            ("max_write=1000", "4K to 16M"),
            ("max_write=32M", "4K to 16M"),
            ("metrics=here", "127.0.0.1:9477"),
            ("metrics=127.0.0.1", "127.0.0.1:9477"),
            ("loglevel=loud", "debug"),
            ("logfile=here.log", "absolute"),
            ("data=sda", "absolute"),
            ("disk_reserve=some", "disk_reserve=some: "),
        ] {
            let error = parsed(list).unwrap_err();
            assert!(error.contains(hint), "{list}: {error}");
        }
    }

    #[test]
    fn every_setting_is_an_option_and_in_the_help() {
        let help = help();
        for (name, ..) in settings::descriptions() {
            let error = parsed(&format!("{name}=nonsense")).unwrap_err();
            assert!(error.contains(name) && error.contains("must be"), "{name}: {error}");
            assert!(help.contains(&format!("{name}=VALUE")), "{name} is not in\n{help}");
        }
        let too_long: Vec<&str> = help.lines().filter(|line| line.len() > 120).collect();
        assert_eq!(too_long, [""; 0], "lines of the help fit a wide terminal");
    }

    #[test]
    fn a_former_name_of_a_setting_still_mounts() {
        let options = parsed("copies_above=5,prefix_bits=12").unwrap();
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(options.settings, [setting("replicate_refs_above", "5"), setting("hint_prefix_bits", "12")]);
    }

    #[test]
    fn the_list_for_the_daemon_says_the_same() {
        let list = "ro,noatime,nosuid,data=/dev/disk/by-id/ours,memory=1G,transport=classic,threads=3,max_write=4M,metrics=[::1]:9477,disk_reserve=16M,profile=edge,fingerprints=eager,inline=off,\
                    inline=all,schedule=22:00-06:00+Sat 00:00-24:00,loglevel=debug";
        let options = parsed(list).unwrap();
        assert_eq!(parsed(&options.to_list()).unwrap(), options);
        assert_eq!(parsed("metrics=9477").unwrap(), parsed("metrics=127.0.0.1:9477").unwrap());
        assert_eq!(parsed(&MountOptions::default().to_list()).unwrap(), MountOptions::default());
    }
}
