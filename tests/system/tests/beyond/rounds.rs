//! Many takeovers under load: a standby follows a head that was killed, or that stands still for longer than its lease.
//!
//! Each head has its own directory for the volume, as on two machines, so that only the lease says that the other is
//! gone. The records are in objects: a directory has nothing that the other one lacks.

use std::os::unix::fs::symlink;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use oncefs_system_tests::{InPlace, Lost, Names, PATIENCE, Random, Replaced, Witness, gate_or_drill, seed, test_dir};

use super::*;

/// Rounds of each test in `scripts/beyond` and in the drill; `ONCEFS_TAKEOVER_ROUNDS` asks for another number
/// (`scripts/takeover-rounds`).
const ROUNDS: (u64, u64) = (2, 200);
/// Volumes at the same time: `ONCEFS_TAKEOVER_VOLUMES`, else one. They share the rounds.
const VOLUMES: u64 = 1;
/// Acknowledgements of a round before the head is stopped, at most.
const ACKNOWLEDGED_MAX: u64 = 100;
/// Changes that the new head makes at least before the old one runs again.
const LATE: u64 = 5;
/// The directory of all files. The mount points lack it, so that nobody takes one of them for the volume.
const TOP: &str = "top";

fn number(variable: &str, default: u64) -> u64 {
    let asked_for = std::env::var(variable).ok();
    asked_for.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// What a volume has on one of two machines.
struct Place {
    volume: PathBuf,
    dir: PathBuf,
    log: PathBuf,
}

impl Place {
    fn in_dir(scratch: &Path, name: &str) -> Self {
        let within = scratch.join(name);
        fs::create_dir_all(within.join("mnt")).unwrap();
        Self { volume: within.join("volume"), dir: within.join("mnt"), log: within.join("log") }
    }

    /// What the process that was started last here said.
    fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

/// A process that has the volume mounted, or waits for it.
struct Head<'a> {
    place: &'a Place,
    child: Child,
}

impl<'a> Head<'a> {
    fn start(place: &'a Place) -> Self {
        let log = File::create(&place.log).unwrap();
        let mut mount = Command::new(oncefs());
        mount.args(["mount", "-f", "--standby"]).arg(&place.volume).arg(&place.dir).stdin(Stdio::null());
        Self { place, child: mount.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap() }
    }

    fn standing_by(place: &'a Place) -> Self {
        let mut standby = Self::start(place);
        eventually("it stands by", || standby.runs() && place.logged().contains("standing by"));
        standby
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn runs(&mut self) -> bool {
        assert!(!self.has_ended(), "{}", self.place.logged());
        true
    }

    /// Waits until it is the head, and answers.
    fn answers(&mut self) {
        let top = self.place.dir.join(TOP);
        eventually("the volume is mounted", || self.runs() && fs::metadata(&top).is_ok());
    }

    fn signal(&self, signal: i32) {
        // SAFETY: plain numbers; the child is not reaped before it has ended.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    fn umount(mut self) {
        run(Command::new(oncefs()).arg("umount").arg(&self.place.dir));
        assert!(self.child.wait().unwrap().success(), "{}", self.place.logged());
    }
}

impl Drop for Head<'_> {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        // A dead one leaves its mount.
        let _ = Command::new("umount").arg("-l").arg(&self.place.dir).stderr(Stdio::null()).status();
    }
}

/// What happens to a head.
#[derive(Clone, Copy)]
enum Blow {
    Kill,
    Pause,
}

impl Blow {
    /// Lets a standby take over. Returns how long that took. Nothing is left of the head.
    fn strike(self, head: Head<'_>, standby: &mut Head<'_>, late: &mut InPlace, seed: u64) -> Duration {
        let began = Instant::now();
        match self {
            Blow::Kill => {
                drop(head);
                standby.answers();
                began.elapsed()
            }
            Blow::Pause => {
                head.signal(libc::SIGSTOP);
                standby.answers();
                let took = began.elapsed();
                go_on(head, late, seed);
                took
            }
        }
    }
}

/// What rounds did.
#[derive(Default)]
struct Tally {
    acknowledged: u64,
    bytes_compared: u64,
    took: Vec<Duration>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.bytes_compared += other.bytes_compared;
        self.took.extend(other.took);
    }

    fn print(mut self, after: &str) {
        self.took.sort();
        let seconds = |at: usize| self.took[at].as_secs_f64();
        println!(
            "{} takeovers {after}: {} fsyncs acknowledged, {} bytes compared, nothing lost; \
             they took {:.1} s in the median, {:.1} s at most",
            self.took.len(),
            self.acknowledged,
            self.bytes_compared,
            seconds(self.took.len() / 2),
            seconds(self.took.len() - 1)
        );
    }
}

/// A volume, its two places, and programs that know what was acknowledged to them.
struct Pair {
    scratch: tempfile::TempDir,
    places: [Place; 2],
    witnesses: Vec<Box<dyn Witness>>,
    /// Works on a new head while the old one has not ended.
    late: InPlace,
}

impl Pair {
    fn new(cluster: &Cluster) -> Self {
        let scratch = tempfile::Builder::new().prefix("oncefs-test-").tempdir_in(test_dir()).unwrap();
        let places = ["a", "b"].map(|name| Place::in_dir(scratch.path(), name));
        let more = ["--records", "rados", "--log-size", "8M"];
        let mut made = Mount::in_objects_with(&cluster.address(), &cluster.conf, "1G", &more);
        for place in &places {
            run(Command::new("cp").args(["-a", "--sparse=always"]).arg(made.volume()).arg(&place.volume));
        }
        made.mount();
        fs::create_dir(made.join(TOP)).unwrap();
        for link in ["now", "late"] {
            point(&scratch.path().join(link), &made.dir());
        }
        let now = |name: &str| scratch.path().join("now").join(TOP).join(name);
        let witnesses: Vec<Box<dyn Witness>> = vec![
            Box::new(InPlace::new(now("in-place"), 0).unwrap()),
            Box::new(InPlace::new(now("synchronous"), libc::O_SYNC).unwrap()),
            Box::new(Names::new(now("names")).unwrap()),
            Box::new(Replaced::new(now("replaced"))),
        ];
        let late = InPlace::new(scratch.path().join("late").join(TOP).join("late"), 0).unwrap();
        made.umount();
        Self { scratch, places, witnesses, late }
    }

    /// One round, in which the volume goes from one place to the other.
    fn round(&mut self, number: u64, blow: Blow, seed: u64) -> Tally {
        let [first, second] = &self.places;
        let (from, to) = if number.is_multiple_of(2) { (first, second) } else { (second, first) };
        let [now, late_at] = ["now", "late"].map(|link| self.scratch.path().join(link));
        let mut head = Head::start(from);
        head.answers();
        point(&now, &from.dir);
        point(&late_at, &to.dir);
        let mut standby = Head::standing_by(to);
        let (late, mut took) = (&mut self.late, Duration::ZERO);
        let acknowledged = under_load(&mut self.witnesses, seed, || took = blow.strike(head, &mut standby, late, seed));
        point(&now, &to.dir);
        let bytes_compared = verify(&mut self.witnesses, &mut self.late, number);
        assert!(to.logged().contains("ran out: taking over"), "{}", to.logged());
        standby.umount();
        let fsck = Command::new(oncefs()).arg("fsck").arg(&to.volume).output().unwrap();
        assert!(fsck.status.success(), "round {number}: {}", String::from_utf8_lossy(&fsck.stdout));
        println!("round {number}: {acknowledged} fsyncs acknowledged, taken over in {:.1} s", took.as_secs_f64());
        Tally { acknowledged, bytes_compared, took: vec![took] }
    }
}

/// Compares everything, on a mount whose kernel has nothing of it yet, but for what `late` wrote in this round.
fn verify(witnesses: &mut [Box<dyn Witness>], late: &mut InPlace, round: u64) -> u64 {
    let all = witnesses.iter_mut().map(|witness| witness.verify()).chain([late.verify()]);
    all.map(|found| found.unwrap_or_else(|Lost(what)| panic!("round {round} lost what was acknowledged: {what}"))).sum()
}

/// Lets a link lead to a mount point.
fn point(link: &Path, dir: &Path) {
    let beside = link.with_extension("new");
    symlink(dir, &beside).unwrap();
    fs::rename(&beside, link).unwrap();
}

/// Lets programs work on the head until some of it is acknowledged, then does something that ends them. Returns how
/// often they were answered.
fn under_load(witnesses: &mut [Box<dyn Witness>], seed: u64, end: impl FnOnce()) -> u64 {
    let (is_ending, acknowledged) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let wanted = 1 + Random::new(seed).below(ACKNOWLEDGED_MAX);
    thread::scope(move |scope| {
        for (number, witness) in witnesses.iter_mut().enumerate() {
            let mut random = Random::new(seed + 1 + number as u64);
            scope.spawn(move || {
                let error = loop {
                    match witness.step(&mut random) {
                        Ok(()) => acknowledged.fetch_add(1, SeqCst),
                        Err(error) => break error,
                    };
                };
                assert!(is_ending.load(SeqCst), "a program met an error of a head that lived: {error}");
            });
        }
        eventually("changes are acknowledged", || acknowledged.load(SeqCst) >= wanted);
        is_ending.store(true, SeqCst);
        end();
    });
    acknowledged.load(SeqCst)
}

/// Lets the old head run again while the new one is written to, and waits for its end.
fn go_on(mut old: Head<'_>, late: &mut InPlace, seed: u64) {
    let mut random = Random::new(seed + 50);
    (0..LATE).for_each(|_| late.step(&mut random).expect("the new head answers"));
    old.signal(libc::SIGCONT);
    let began = Instant::now();
    while !old.has_ended() {
        assert!(began.elapsed() < PATIENCE, "the old head stays\n{}", old.place.logged());
        late.step(&mut random).expect("the new head answers");
    }
    let said = old.place.logged();
    assert!(said.contains("stood still for longer than its lease") || said.contains("took the volume over"), "{said}");
}

/// All rounds of a test, shared by volumes.
fn rounds(test: &str, after: &str, blow: Blow) {
    let rounds = number("ONCEFS_TAKEOVER_ROUNDS", gate_or_drill(ROUNDS.0, ROUNDS.1));
    let volumes = number("ONCEFS_TAKEOVER_VOLUMES", VOLUMES);
    let names: Vec<_> = (0..volumes).map(|volume| format!("{test}-{volume}")).collect();
    let Some(clusters) = names.iter().map(|name| Cluster::of_test(name)).collect::<Option<Vec<_>>>() else { return };
    let (seed, mut tally) = (seed(), Tally::default());
    let of_volume = &|(volume, cluster): (u64, Cluster)| {
        let (mut pair, mut tally) = (Pair::new(&cluster), Tally::default());
        for round in (volume..rounds).step_by(volumes as usize) {
            tally.add(pair.round(round / volumes, blow, seed + 100 * round));
        }
        tally
    };
    thread::scope(|scope| {
        let under_way: Vec<_> = (0..).zip(clusters).map(|each| scope.spawn(move || of_volume(each))).collect();
        under_way.into_iter().for_each(|thread| tally.add(thread.join().expect("no round failed")));
    });
    assert_eq!(tally.took.len() as u64, rounds);
    tally.print(after);
}

#[test]
fn what_was_acknowledged_survives_takeovers_from_killed_heads() {
    rounds("killed", "from a head killed under load", Blow::Kill);
}

#[test]
fn what_was_acknowledged_survives_takeovers_from_heads_that_stand_still_and_go_on() {
    rounds("stopped", "from a head that stood still under load and went on", Blow::Pause);
}

/// fsck neither waits for a lease nor takes over: it finds the lock free, or fails.
#[test]
fn an_unmounted_volume_is_free_at_once_for_a_machine_with_another_directory() {
    let Some(cluster) = Cluster::of_test("released") else { return };
    let mut mount = Mount::in_objects_with(&cluster.address(), &cluster.conf, "1G", &["--records", "rados"]);
    let other = tempfile::tempdir_in(test_dir()).unwrap();
    run(Command::new("cp").args(["-a", "--sparse=always"]).arg(mount.volume()).arg(other.path()));
    mount.mount();
    write_synced(&mount.join("file"), 1, MIB).unwrap();
    mount.umount();
    run(Command::new(oncefs()).arg("fsck").arg(other.path().join("volume")));
    mount.mount();
    mount.terminate();
    run(Command::new(oncefs()).arg("fsck").arg(other.path().join("volume")));
}
