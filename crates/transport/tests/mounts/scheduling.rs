//! Which threads answer over rings: those of the scheduler's lowest class, or normal ones where others want the CPUs.

use std::process::{Child, Command};

use super::tree::Tree;
use super::waiting::eventually;

/// A process for each CPU that does nothing but run.
struct Busy(Vec<Child>);

impl Busy {
    fn start() -> Self {
        let cpus = std::thread::available_parallelism().unwrap().get();
        // Ends by itself should nobody end it.
        let spin = || Command::new("timeout").args(["300", "sh", "-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..cpus).map(|_| spin()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|child| {
            // SAFETY: takes two numbers; the process is a child of this one and not waited for.
            unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
            drop(child.wait());
        });
    }
}

/// Of a hundred requests, those that a low thread answered.
fn low_of_hundred(tree: &Tree) -> u64 {
    let counts = || (tree.count("low"), tree.count("normal"));
    let (low, normal) = counts();
    loop {
        let (now_low, now_normal) = counts();
        let all = now_low + now_normal - low - normal;
        if all >= 100 {
            return (now_low - low) * 100 / all;
        }
    }
}

#[test]
fn low_threads_answer_until_others_want_the_cpus() {
    let tree = Tree::mount("rings");
    eventually("a low thread answers", || low_of_hundred(&tree) > 0);
    let busy = Busy::start();
    eventually("nearly all answers come from normal threads", || low_of_hundred(&tree) <= 5);
    drop(busy);
    eventually("low threads answer again", || low_of_hundred(&tree) >= 20);
    tree.unmount();
}

#[test]
fn over_the_device_no_thread_is_low() {
    let tree = Tree::mount("classic");
    assert_eq!(low_of_hundred(&tree), 0);
    tree.unmount();
}
