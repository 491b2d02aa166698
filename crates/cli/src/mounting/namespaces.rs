//! Other mount namespaces in which a volume is mounted, as far as root sees their processes.
//!
//! An unmount reaches the copies of a mount in other namespaces as the kernel's propagation has it: if the mount below
//! is shared with theirs, or theirs follows it. Services of systemd have such namespaces. A container, or unshare(1), has
//! a copy that stays, and with it the daemon.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::mount_table::{self, Mount};

/// What a line of mountinfo says about propagation.
struct Place {
    id: u32,
    parent: u32,
    /// The group with which unmounts on it are shared.
    shared: Option<u32>,
    /// The group whose unmounts it follows.
    master: Option<u32>,
    mount: Mount,
}

/// A mount namespace.
struct Namespace {
    /// A process in it.
    process: u32,
    places: Vec<Place>,
}

/// A process in another mount namespace that keeps the volume mounted when `mount` is unmounted here. None: there is
/// none, or it cannot be seen.
pub fn keeping(mount: &Mount) -> Option<u32> {
    let own = fs::metadata("/proc/self/ns/mnt").ok()?.ino();
    let mut seen = BTreeSet::from([own]);
    let mut all = vec![Namespace { process: 0, places: places(&fs::read("/proc/self/mountinfo").ok()?) }];
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(number) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that ends meanwhile keeps nothing.
        let Ok(namespace) = fs::metadata(process.path().join("ns/mnt")) else { continue };
        if seen.insert(namespace.ino())
            && let Ok(table) = fs::read(process.path().join("mountinfo"))
        {
            all.push(Namespace { process: number, places: places(&table) });
        }
    }
    kept_by(&all, mount)
}

/// The same for these namespaces. The first is that of the unmount.
fn kept_by(all: &[Namespace], mount: &Mount) -> Option<u32> {
    let (own, others) = all.split_first()?;
    let is_same = |place: &&Place| place.mount.device == mount.device && place.mount.is_oncefs();
    let here = own.places.iter().rfind(is_same)?;
    let mut reached: BTreeSet<u32> = own.below(here).and_then(|below| below.shared).into_iter().collect();
    // A namespace that follows one may be followed by a third.
    let every = || all.iter().flat_map(|namespace| &namespace.places);
    loop {
        let before = reached.len();
        let follows = every().filter(|place| place.master.is_some_and(|group| reached.contains(&group)));
        let further: Vec<u32> = follows.filter_map(|place| place.shared).collect();
        reached.extend(further);
        if reached.len() == before {
            break;
        }
    }
    let is_reached = |below: &Place| below.shared.into_iter().chain(below.master).any(|group| reached.contains(&group));
    let keeps = |namespace: &&Namespace| {
        let mut copies = namespace.places.iter().filter(is_same);
        copies.any(|copy| !namespace.below(copy).is_some_and(is_reached))
    };
    others.iter().find(keeps).map(|namespace| namespace.process)
}

impl Namespace {
    /// The mount on which another lies.
    fn below(&self, place: &Place) -> Option<&Place> {
        self.places.iter().find(|below| below.id == place.parent)
    }
}

fn places(table: &[u8]) -> Vec<Place> {
    table.split(|&byte| byte == b'\n').filter_map(place).collect()
}

fn place(line: &[u8]) -> Option<Place> {
    let fields: Vec<&str> = line.split(|&byte| byte == b' ').map(|f| std::str::from_utf8(f).unwrap_or("")).collect();
    let dash = fields.iter().position(|field| *field == "-")?;
    let group = |word: &str| fields.get(6..dash)?.iter().find_map(|tag| tag.strip_prefix(word)?.parse().ok());
    Some(Place {
        id: fields.first()?.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        shared: group("shared:"),
        master: group("master:"),
        mount: mount_table::parse(line)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "\
        20 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
        50 20 0:52 / /home rw shared:9 - fuse.oncefs /srv/volume rw,user_id=0\n";

    fn kept(others: &[&str]) -> Option<u32> {
        let tables = [OURS].into_iter().chain(others.iter().copied());
        let all: Vec<Namespace> =
            tables.zip(0..).map(|(table, process)| Namespace { process, places: places(table.as_bytes()) }).collect();
        let mount = mount_table::parse(OURS.lines().last().unwrap().as_bytes()).unwrap();
        kept_by(&all, &mount)
    }

    /// A namespace with the volume on a mount with these tags.
    fn copy(below: &str, own: &str) -> String {
        format!(
            "120 101 8:1 / / rw {below}- ext4 /dev/sda1 rw\n\
             150 120 0:52 / /home rw {own}- fuse.oncefs /srv/volume rw,user_id=0\n"
        )
    }

    #[test]
    fn a_copy_that_the_unmount_does_not_reach_keeps_a_volume() {
        assert_eq!(kept(&[]), None);
        assert_eq!(kept(&["120 101 8:1 / / rw - ext4 /dev/sda1 rw\n"]), None, "the volume is not in it");
        for (below, own) in [("", ""), ("shared:5 ", "shared:6 "), ("master:5 ", "master:6 "), ("", "master:9 ")] {
            assert_eq!(kept(&[&copy(below, own)]), Some(1), "{below}{own}");
        }
        assert_eq!(kept(&[&copy("shared:1 ", "shared:9 "), &copy("", "")]), Some(2));
    }

    #[test]
    fn a_copy_that_goes_with_the_unmount_keeps_nothing() {
        for below in ["shared:1 ", "master:1 ", "shared:7 master:1 "] {
            assert_eq!(kept(&[&copy(below, "master:9 ")]), None, "{below}");
        }
        let follows = copy("shared:7 master:1 ", "shared:8 master:9 ");
        assert_eq!(kept(&[&copy("master:7 ", "master:8 "), &follows]), None, "by way of another namespace");
    }

    #[test]
    fn other_file_systems_keep_nothing() {
        let other = copy("", "").replace("0:52", "0:53");
        assert_eq!(kept(&[&other]), None);
        let mount = mount_table::all().unwrap().into_iter().find(|mount| mount.dir.as_os_str() == "/proc").unwrap();
        assert_eq!(keeping(&mount), None, "it is no volume");
    }
}
