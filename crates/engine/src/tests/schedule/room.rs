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
fn publish(volume: &SmallVolume, inode: &InodeLock, number: usize) {
    for _ in 0..TIMES {
        volume.core.change_room.wait_for_room();
        // As much as is published: two claims and a group exceed the room.
        let _room = volume.core.change_room.claim_log_room(GroupBytes::of_blocks(ROOM_BLOCKS));
        let _inode = inode.lock();
        let mut change = Change::new();
        change.put(vec![0x11, number as u8], vec![7; RECORD_BYTES]);
        volume.core.publisher.publish(change).unwrap();
    }
}

/// Punches: the change ends with the inode locked, while it holds off the commit.
fn punch(volume: &SmallVolume, inode: &InodeLock, map: MapId) {
    for _ in 0..TIMES {
        volume.core.change_room.wait_for_room();
        volume.core.range_changes.zero(map, 0, 3 * BLOCK, false, |_, _| drop(inode.lock())).unwrap();
    }
}

/// The work of a thread.
type Work = Box<dyn FnOnce(&SmallVolume, &InodeLock) + Send>;

/// Two publishing threads, one that punches, the committer and the checkpointer.
pub fn run(shape: Shape, mut random: Random) {
    let volume = Arc::new(SmallVolume::new(shape, 1, Random::new(random.word())));
    let inode = Arc::new(Mutex::new(LockRank::Inode, ()));
    let map = volume.fresh_map();
    volume.core.base.signals.threads_start();
    let spawn = |work: Work| {
        let (volume, inode) = (volume.clone(), inode.clone());
        thread::spawn(move || work(&volume, &inode))
    };
    let background = [
        spawn(Box::new(|volume, _| volume.commit_until_stopped())),
        spawn(Box::new(|volume, _| {
            while volume.core.base.signals.next_checkpoint() {
                volume.core.commits.checkpoint().unwrap();
            }
        })),
    ];
    let programs = [
        spawn(Box::new(|volume, inode| publish(volume, inode, 1))),
        spawn(Box::new(|volume, inode| publish(volume, inode, 2))),
        spawn(Box::new(move |volume, inode| punch(volume, inode, map))),
    ];
    programs.into_iter().for_each(|thread| thread.join().unwrap());
    volume.core.base.signals.stop();
    background.into_iter().for_each(|thread| thread.join().unwrap());
    Arc::into_inner(volume).expect("all threads ended").finish();
}
