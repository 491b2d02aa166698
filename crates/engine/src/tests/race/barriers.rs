//! Callers that wait for a commit: who makes it, and what each caller is told.

use std::thread::{self, ThreadId};

use super::*;
use crate::background::committer::{answer, barrier};
use crate::volume::assembly::Volume;

/// Asks for a commit, and returns a channel that names the answering thread.
fn ask(volume: &Volume) -> mpsc::Receiver<ThreadId> {
    let (told, by) = mpsc::channel();
    barrier(
        volume,
        Box::new(move |result| {
            result.unwrap();
            // The caller may have stopped listening.
            let _ = told.send(thread::current().id());
        }),
    );
    by
}

#[test]
fn a_single_caller_commits_by_itself_and_the_committer_answers_those_who_come_meanwhile() {
    let volume = Devices::new(Blocks(1000), one_level()).open();
    let write = |map| volume.write(MapId(map), 0, &unique(40, map), |_, _| ()).unwrap();
    write(1);
    assert!(ask(&volume).try_recv().is_err(), "without threads somebody else drives the volume");
    answer(&volume, volume.base.signals.next_commit(Duration::ZERO, false).barriers);
    volume.base.signals.threads_start();
    write(2);
    assert_eq!(ask(&volume).try_recv(), Ok(thread::current().id()));
    assert_eq!(volume.groups.group_times(), (None, None), "nothing is left to commit");

    assert!(volume.base.signals.begin_commit());
    write(3);
    let waiting = [ask(&volume), ask(&volume)];
    assert!(waiting.iter().all(|by| by.try_recv().is_err()), "another caller commits");
    volume.base.signals.end_commit();
    let behind = ask(&volume);
    assert!(behind.try_recv().is_err(), "those who wait already come first");
    answer(&volume, volume.base.signals.next_commit(Duration::ZERO, false).barriers);
    for by in waiting.iter().chain([&behind]) {
        assert!(by.try_recv().is_ok());
    }
    assert!(ask(&volume).try_recv().is_ok(), "nobody waits any more");
    volume.base.signals.stop();
    let (told, result) = mpsc::channel();
    barrier(&volume, Box::new(move |end| told.send(end.is_err()).unwrap()));
    assert_eq!(result.try_recv(), Ok(true), "the volume was closed");
}
