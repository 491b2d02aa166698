//! The volumes to damage: small, with an example of everything that a volume can hold.

use std::sync::LazyLock;

use oncefs_engine::BackgroundStep;
use oncefs_fs::{AllocateMode, Caller, FileSystem, Ino, POLICY_ATTRIBUTE, Privileges, WriteOrigin, XattrMode};

use crate::tree::Tree;
use crate::volume::{Parts, Volume};

/// Root, without a umask.
pub const ROOT: Caller<'_> = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };
/// A program's write.
pub const BY_CALLER: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };

const BLOCK: usize = 4096;
/// An access control list with a named user.
const ACL: &[u8] =
    b"\x02\0\0\0\x01\0\x07\0\xff\xff\xff\xff\x02\0\x07\0\xe8\x03\0\0\x04\0\x05\0\xff\xff\xff\xff\x10\0\x07\0\xff\xff\xff\xff\x20\0\x05\0\xff\xff\xff\xff";

/// A volume, and every state that a mount may show: damage to the end of its log can remove the last groups.
pub struct Base {
    /// Its bytes.
    pub parts: Parts,
    /// The states that a mount may show, the newest last.
    pub states: Vec<Tree>,
}

/// A volume that was unmounted, and one that lost power with three groups in the log.
pub static BASES: LazyLock<[Base; 2]> = LazyLock::new(|| [make(false), make(true)]);

fn make(is_cut: bool) -> Base {
    let volume = Volume::new();
    let file_system = volume.open(false).expect("a sound volume opens");
    let must = "a sound volume takes this";
    fill(&file_system).expect(must);
    // The worker has examined some of it, and the rank queues know all files.
    file_system.store().run(BackgroundStep::Revisit { blocks_max: 64 }).expect(must);
    file_system.store().run(BackgroundStep::Rank).expect(must);
    file_system.store().run(BackgroundStep::LeaveCleanly).expect(must);
    let mut states = vec![Tree::of(&file_system)];
    if is_cut {
        for round in 0..3 {
            change(&file_system, round).expect(must);
            file_system.store().commit().expect(must);
            states.push(Tree::of(&file_system));
        }
    }
    drop(file_system);
    let parts = volume.parts();
    let found = Tree::of(&Volume::of(&parts).open(true).expect("a sound volume opens"));
    assert_eq!(found.first_difference(&states[states.len() - 1..]), None, "the base volume");
    Base { parts, states }
}

/// Incompressible bytes, the same for the same `kind`.
pub fn bytes(kind: u8, len: usize) -> Vec<u8> {
    let mut state = u32::from(kind).wrapping_mul(0x9E37_79B9) | 1;
    let next = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (*state >> 24) as u8
    };
    (0..len).map(|at| if kind == 0 { 0 } else { next(&mut state).wrapping_add((at / BLOCK) as u8) }).collect()
}

fn file(fs: &FileSystem, parent: Ino, name: &[u8], content: &[u8]) -> oncefs_fs::Result<Ino> {
    let ino = fs.mknod(parent, name, libc::S_IFREG | 0o644, 0, &ROOT)?.ino;
    if !content.is_empty() {
        fs.write(ino, 0, content, BY_CALLER)?;
    }
    Ok(ino)
}

fn fill(fs: &FileSystem) -> oncefs_fs::Result<()> {
    let above = fs.mkdir(Ino::ROOT, b"a", 0o755, &ROOT)?.ino;
    let below = fs.mkdir(above, b"b", 0o2755, &ROOT)?.ino;
    file(fs, Ino::ROOT, b"small", b"a few bytes")?;
    file(fs, Ino::ROOT, b"empty", b"")?;
    let unique = file(fs, above, b"unique", &bytes(1, 40 * BLOCK + 100))?;
    file(fs, below, b"same", &bytes(1, 40 * BLOCK + 100))?;
    let holes = file(fs, below, b"holes", &bytes(2, 20 * BLOCK))?;
    fs.fallocate(holes, 3 * BLOCK as u64, 5 * BLOCK as u64, AllocateMode::PunchHole, Privileges::Kept)?;
    fs.fallocate(
        holes,
        9 * BLOCK as u64,
        4 * BLOCK as u64,
        AllocateMode::ZeroRange { keep_size: true },
        Privileges::Kept,
    )?;
    fs.fallocate(
        holes,
        300 * BLOCK as u64,
        8 * BLOCK as u64,
        AllocateMode::Reserve { keep_size: true },
        Privileges::Kept,
    )?;
    let clone = file(fs, above, b"clone", b"")?;
    fs.copy_file_range(unique, 0, clone, BLOCK as u64, 30 * BLOCK as u64, Privileges::Kept)?;
    fs.write(clone, 7 * BLOCK as u64 + 5, b"changed", BY_CALLER)?;
    fs.symlink(below, b"link", b"../unique", &ROOT)?;
    fs.link(unique, Ino::ROOT, b"other name")?;
    fs.mknod(above, b"pipe", libc::S_IFIFO | 0o600, 0, &ROOT)?;
    fs.setxattr(unique, b"user.one", b"value", XattrMode::Any, true)?;
    fs.setxattr(above, b"user.two", &bytes(3, 300), XattrMode::Any, true)?;
    fs.setxattr(holes, b"system.posix_acl_access", ACL, XattrMode::Any, true)?;
    fs.setxattr(below, b"system.posix_acl_default", ACL, XattrMode::Any, true)?;
    let many = fs.mkdir(Ino::ROOT, b"many", 0o755, &ROOT)?.ino;
    fs.setxattr(many, POLICY_ATTRIBUTE, b"run=1", XattrMode::Any, true)?;
    for number in 0..24_u8 {
        file(fs, many, format!("file {number}").as_bytes(), &bytes(10 + number % 5, 900))?;
    }
    file(fs, Ino::ROOT, b"open and removed", &bytes(4, 3 * BLOCK))?;
    fs.unlink(Ino::ROOT, b"open and removed")?;
    let freed = file(fs, Ino::ROOT, b"freed", &bytes(5, 3 * BLOCK))?;
    fs.unlink(Ino::ROOT, b"freed")?;
    fs.forget(freed)
}

/// One commit group of the volume that loses power.
fn change(fs: &FileSystem, round: u8) -> oncefs_fs::Result<()> {
    let name = format!("in the log {round}");
    let ino = file(fs, Ino::ROOT, name.as_bytes(), &bytes(20 + round, 2 * BLOCK + 50))?;
    fs.setxattr(ino, b"user.round", &[round], XattrMode::Any, true)?;
    let small = fs.lookup(Ino::ROOT, b"small")?.ino;
    fs.write(small, u64::from(round) * 3, &bytes(30 + round, BLOCK), BY_CALLER)?;
    let many = fs.lookup(Ino::ROOT, b"many")?.ino;
    fs.unlink(many, format!("file {round}").as_bytes())?;
    let clone = fs.lookup(fs.lookup(Ino::ROOT, b"a")?.ino, b"clone")?.ino;
    fs.fallocate(clone, u64::from(round) * 10_000, 9000, AllocateMode::PunchHole, Privileges::Kept)
}
