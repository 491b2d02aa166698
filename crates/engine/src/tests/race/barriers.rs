//! Callers that wait for a commit: who makes it, and what each caller is told.

use std::thread::{self, ThreadId};

use super::*;
use crate::background::committer::answer;
use crate::volume::assembly::Volume;

/// Asks for a commit, and returns a channel that names the answering thread.
fn ask(core: &Volume) -> mpsc::Receiver<ThreadId> {
    let (told, by) = mpsc::channel();
    core.barrier(Box::new(move |result| {
        result.unwrap();
        // The caller may have stopped listening.
        let _ = told.send(thread::current().id());
    }));
    by
}

#[test]
fn a_single_caller_commits_by_itself_and_the_committer_answers_those_who_come_meanwhile() {
    let core = Devices::new(Blocks(1000), one_level()).open();
    let write = |map| core.write(MapId(map), 0, &unique(40, map), |_, _| ()).unwrap();
    write(1);
    assert!(ask(&core).try_recv().is_err(), "without threads somebody else drives the volume");
    answer(&core, core.base.signals.next_commit(Duration::ZERO, false).barriers);
    core.base.signals.threads_start();
    write(2);
    assert_eq!(ask(&core).try_recv(), Ok(thread::current().id()));
    assert_eq!(core.groups.group_times(), (None, None), "nothing is left to commit");

    assert!(core.base.signals.begin_commit());
    write(3);
    let waiting = [ask(&core), ask(&core)];
    assert!(waiting.iter().all(|by| by.try_recv().is_err()), "another caller commits");
    core.base.signals.end_commit();
    let behind = ask(&core);
    assert!(behind.try_recv().is_err(), "those who wait already come first");
    answer(&core, core.base.signals.next_commit(Duration::ZERO, false).barriers);
    for by in waiting.iter().chain([&behind]) {
        assert!(by.try_recv().is_ok());
    }
    assert!(ask(&core).try_recv().is_ok(), "nobody waits any more");
    core.base.signals.stop();
    let (told, result) = mpsc::channel();
    core.barrier(Box::new(move |end| told.send(end.is_err()).unwrap()));
    assert_eq!(result.try_recv(), Ok(true), "the volume was closed");
}
