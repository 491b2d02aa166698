//! Room in the log, claimed by more threads than it fits at a time, while changes in pieces hold off the commit and
//! need the lock of an inode: no thread waits forever.

use std::sync::Arc;

use shuttle::thread;

use super::model::BLOCK;
use super::volume::{Shape, SmallVolume};
use crate::format::group_bytes::GroupBytes;
use crate::sync::{LockRank, Mutex};
use crate::tests::fixture::Random;
use crate::{Change, MapId};

/// How often each thread does its work.
const TIMES: usize = 2;
/// Bytes of a record: two fill a group.
const RECORD_BYTES: usize = 20 << 10;

/// Blocks whose change takes this much on the smallest log, which is eight times this one.
const ROOM_BLOCKS: u64 = 8 * RECORD_BYTES as u64 / 64;

type InodeLock = Arc<Mutex<()>>;

/// Publishes a record with the inode locked, as `fs` does.
fn publish(small: &SmallVolume, inode: &InodeLock, number: usize) {
    for _ in 0..TIMES {
        small.volume.change_room.wait_for_room();
        // As much as is published: two claims and a group exceed the room.
        let _room = small.volume.change_room.claim_log_room(GroupBytes::of_blocks(ROOM_BLOCKS));
        let _inode = inode.lock();
        let mut change = Change::new();
        change.put(vec![0x11, number as u8], vec![7; RECORD_BYTES]);
        small.volume.publisher.publish(change).unwrap();
    }
}

/// Punches: the change ends with the inode locked, while it holds off the commit.
fn punch(small: &SmallVolume, inode: &InodeLock, map: MapId) {
    for _ in 0..TIMES {
        small.volume.change_room.wait_for_room();
        small.volume.range_changes.zero(map, 0, 3 * BLOCK, false, |_, _| drop(inode.lock())).unwrap();
    }
}

/// The work of a thread.
type Work = Box<dyn FnOnce(&SmallVolume, &InodeLock) + Send>;

/// Two publishing threads, one that punches, the committer and the checkpointer.
pub fn run(shape: Shape, mut random: Random) {
    let small = Arc::new(SmallVolume::new(shape, 1, Random::new(random.word())));
    let inode = Arc::new(Mutex::new(LockRank::Inode, ()));
    let map = small.fresh_map();
    small.volume.base.signals.threads_start();
    let spawn = |work: Work| {
        let (small, inode) = (small.clone(), inode.clone());
        thread::spawn(move || work(&small, &inode))
    };
    let background = [
        spawn(Box::new(|small, _| small.commit_until_stopped())),
        spawn(Box::new(|small, _| {
            while small.volume.base.signals.next_checkpoint() {
                small.volume.commits.checkpoint().unwrap();
            }
        })),
    ];
    let programs = [
        spawn(Box::new(|small, inode| publish(small, inode, 1))),
        spawn(Box::new(|small, inode| publish(small, inode, 2))),
        spawn(Box::new(move |small, inode| punch(small, inode, map))),
    ];
    programs.into_iter().for_each(|thread| thread.join().unwrap());
    small.volume.base.signals.stop();
    background.into_iter().for_each(|thread| thread.join().unwrap());
    Arc::into_inner(small).expect("all threads ended").finish();
}
