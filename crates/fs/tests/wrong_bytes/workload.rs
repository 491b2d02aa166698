//! The workload of a volume: three users with files of their own, and content that all of them have.

use super::truth::{BLOCK, shared};
use super::user::{ACL, Users};

/// The users; the directory of each is named after it.
pub const UIDS: [u32; 3] = [1000, 1001, 1002];
const FILES: usize = 36;

fn home(uid: u32) -> Vec<u8> {
    format!("user {uid}").into_bytes()
}

fn path(uid: u32, rest: &str) -> Vec<u8> {
    format!("user {uid}/{rest}").into_bytes()
}

/// The path of a file on the first days.
fn file(uid: u32, n: usize) -> Vec<u8> {
    path(uid, &format!("folder {}/file {n}", n % 4))
}

fn after(uid: u32) -> u32 {
    UIDS[(uid - UIDS[0] + 1) as usize % UIDS.len()]
}

/// Makes all files.
pub fn first_day(users: &mut Users<'_>) {
    for uid in UIDS {
        users.mkdir(&home(uid), uid, 0o700);
        for folder in 0..4 {
            users.mkdir(&path(uid, &format!("folder {folder}")), uid, 0o755);
        }
        users.mkdir(&path(uid, "links"), uid, 0o750);
        for n in 0..FILES {
            make_file(users, uid, n);
        }
        for name in ["large", "in pieces"] {
            let path = path(uid, name);
            users.create(&path, uid);
            users.write(&path, 0, 280 * BLOCK);
        }
        // Every second block of it is the users' common content.
        for block in (0..140).step_by(2) {
            users.write_bytes(&path(uid, "in pieces"), block * BLOCK, &shared(BLOCK));
        }
    }
}

fn make_file(users: &mut Users<'_>, uid: u32, n: usize) {
    let path_of = file(uid, n);
    users.create(&path_of, uid);
    users.write(&path_of, 0, 100 + (n * 1_237) % (6 * BLOCK));
    match n % 9 {
        0 => users.link(&path_of, &path(uid, &format!("links/other name of {n}"))),
        1 | 2 => users.set_xattr(&path_of, b"user.note", format!("first note of {uid} on {n}").as_bytes()),
        3 | 4 => users.set_acl(&path_of, after(uid)),
        5 => users.symlink(&path(uid, &format!("links/link to {n}")), uid, &path_of),
        6 => users.write_bytes(&path_of, 2 * BLOCK, &shared(3 * BLOCK)),
        _ => {}
    }
}

/// Replaces and deletes many files, and gives others to other users.
pub fn second_day(users: &mut Users<'_>) {
    for uid in UIDS {
        for n in (0..FILES).step_by(2) {
            change_file(users, uid, n);
        }
        users.write(&path(uid, "large"), 100 * BLOCK, 150 * BLOCK);
        users.truncate(&path(uid, "in pieces"), 270 * BLOCK + 77);
    }
}

fn change_file(users: &mut Users<'_>, uid: u32, n: usize) {
    let path_of = file(uid, n);
    match n % 14 {
        0 => users.write(&path_of, 0, 2 * BLOCK),
        2 => users.chmod(&path_of, 0o600),
        4 => users.rename(&path_of, &path(uid, &format!("folder 3/moved {n}"))),
        6 | 12 => users.unlink(&path_of),
        8 => users.chown(&path_of, after(uid)),
        _ => users.truncate(&path_of, 60),
    }
    let Some(ino) = users.tree.names.get(&path_of) else { return };
    let xattrs = users.tree.things[ino].xattrs.clone();
    if xattrs.contains_key(ACL) {
        users.remove_xattr(&path_of, ACL);
    }
    if xattrs.contains_key(&b"user.note"[..]) {
        users.set_xattr(&path_of, b"user.note", format!("second note of {uid} on {n}").as_bytes());
    }
}

/// Lets other files take the free room, and changes the changed files again.
pub fn third_day(users: &mut Users<'_>) {
    for uid in UIDS {
        for n in 0..10 {
            let path = path(uid, &format!("folder {}/late {n}", n % 4));
            users.create(&path, uid);
            users.write(&path, 0, 500 + n * 3_000);
            users.set_xattr(&path, b"user.note", format!("note of {uid} on late {n}").as_bytes());
        }
        for n in (1..FILES).step_by(6) {
            users.write(&file(uid, n), 0, BLOCK + 9);
            // An access control list would change with them.
            if !users.tree.at(&file(uid, n)).xattrs.contains_key(ACL) {
                users.chmod(&file(uid, n), 0o400);
            }
        }
        users.write(&path(uid, "large"), 0, 50 * BLOCK);
    }
}
