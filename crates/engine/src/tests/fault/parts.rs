//! Parts that do not belong together: cut short, emptied, from an older copy of the volume, from another volume.

use std::sync::Arc;

use super::*;
use crate::device::MemoryDevice;
use crate::fsck::parts::checker;
use crate::volume::assembly::Volume;

/// All parts of a volume at one moment, and the content of its files.
pub(super) struct Copy {
    pub(super) name: &'static str,
    pub(super) devices: Devices,
    pub(super) contents: Model,
}

const PARTS: [&str; 6] = ["data", "table", "log", RECORDS, "hints", "skipped"];

/// The outcome for a volume whose parts do not belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// It does not open, and says why.
    Refused,
    /// A read of a file, or a change, returns an error.
    Error,
    /// Everything committed is there.
    Right,
    /// Another moment of this volume is there, whole.
    Other,
    /// Something else is there, and `check` with all data read says so.
    Found,
    /// Something else is there.
    Wrong,
}

fn image(device: &MemoryDevice) -> Arc<MemoryDevice> {
    Arc::new(device.after_power_cut(|_| true))
}

pub(super) fn copy_of(devices: &Devices) -> Devices {
    Devices {
        data: image(&devices.data),
        table: image(&devices.table),
        fragments: image(&devices.fragments),
        log: image(&devices.log),
        kv: Arc::new(devices.kv.after_power_cut(true)),
        hints: image(&devices.hints),
        skipped: image(&devices.skipped),
        settings: devices.settings.clone(),
    }
}

/// The parts of `into` with one of `from`.
fn with_part(into: &Devices, part: &str, from: &Devices) -> Devices {
    let mut mixed = copy_of(into);
    let from = copy_of(from);
    match part {
        "data" => mixed.data = from.data,
        "table" => mixed.table = from.table,
        "log" => mixed.log = from.log,
        RECORDS => mixed.kv = from.kv,
        "hints" => mixed.hints = from.hints,
        "skipped" => mixed.skipped = from.skipped,
        other => panic!("no part is called {other}"),
    }
    mixed
}

fn backend(devices: &Devices, id: u8) -> Backend {
    Backend { volume_id: [id; 16], secret: [id; 32], ..devices.backend() }
}

/// Copies of a volume as it grows older; each is taken without closing it, save the last.
pub(super) fn history(id: u8) -> Vec<Copy> {
    let devices = Devices::new(DATA, settings());
    devices.table.punch(0, devices.table.len().unwrap()).unwrap();
    crate::Store::format_on(&backend(&devices, id), DATA).unwrap();
    let volume = try_open(&devices, backend(&devices, id)).unwrap();
    // The test numbers its maps itself.
    volume.base.maps.skip_to(MapId(100));
    let mut copies = Vec::new();
    let mut model = Model::new();
    let work = |steps: &[Step], name, model: &mut Model, copies: &mut Vec<Copy>| {
        for step in steps {
            let after = step.applied(model.clone());
            perform(&volume, *step, &after).unwrap();
            *model = after;
        }
        let devices = copy_of(&devices);
        copies.push(Copy { name, devices, contents: model.clone() });
    };
    use Step::*;
    let key = u64::from(id) * 1000;
    let steps = [
        BackgroundStep(crate::BackgroundStep::Reclaim),
        Commit,
        BackgroundStep(crate::BackgroundStep::Release),
        BackgroundStep(crate::BackgroundStep::SaveSkipped),
    ];
    work(&[], "new", &mut model, &mut copies);
    let first = [
        Write { map: 1, at: 0, key: key + 1, len: 100 * BLOCK },
        Write { map: 2, at: 0, key: key + 2, len: 50 * BLOCK },
        Write { map: 3, at: 0, key: key + 3, len: 3 * BLOCK },
        Commit,
    ];
    work(&first, "committed", &mut model, &mut copies);
    work(&[BackgroundStep(crate::BackgroundStep::Checkpoint)], "checkpointed", &mut model, &mut copies);
    // Rewrites and deletions whose blocks are reused, so that old maps lead to new content.
    for round in 0..2 {
        let steps = [
            Write { map: 1, at: 0, key: key + 10 + round, len: 100 * BLOCK },
            Write { map: 3, at: BLOCK, key: key + 20 + round, len: 2 * BLOCK },
            Commit,
        ];
        work(&steps, "overwritten", &mut model, &mut copies);
        work(&steps, "released", &mut model, &mut copies);
    }
    work(&[Detach { map: 2 }, Commit], "deleted", &mut model, &mut copies);
    work(&steps, "reclaimed", &mut model, &mut copies);
    work(&[BackgroundStep(crate::BackgroundStep::Checkpoint)], "checkpointed again", &mut model, &mut copies);
    work(&[Write { map: 4, at: 0, key: key + 4, len: 60 * BLOCK }, Commit], "behind that", &mut model, &mut copies);
    work(&[BackgroundStep(crate::BackgroundStep::LeaveCleanly)], "closed", &mut model, &mut copies);
    copies
}

/// Opens, reads and checks the volume, and then works with it, as long as it allows.
pub(super) fn judge(devices: &Devices, id: u8, expected: &Model, moments: &[&Model]) -> Verdict {
    let volume = match try_open(devices, backend(devices, id)) {
        Ok(volume) => volume,
        Err(Error::Corrupt { .. }) => return Verdict::Refused,
        Err(error) => panic!("opening answers {error:?}"),
    };
    let found = match contents(&volume) {
        Ok(found) => found,
        Err(Error::Corrupt { .. } | Error::Io { .. }) => return Verdict::Error,
        Err(error) => panic!("reading answers {error:?}"),
    };
    let is_clean = match checker(&volume).check(true, &mut |_, _| ()) {
        Ok(report) => report.is_clean(),
        Err(Error::Corrupt { .. } | Error::Io { .. }) => false,
        Err(error) => panic!("check answers {error:?}"),
    };
    match () {
        _ if found == *expected && is_clean => work_on(&volume, found),
        _ if moments.contains(&&found) && is_clean => Verdict::Other,
        _ if !is_clean => Verdict::Found,
        _ => Verdict::Wrong,
    }
}

/// A volume that seems whole must be whole for further work too.
fn work_on(volume: &Volume, found: Model) -> Verdict {
    drop(volume.run(BackgroundStep::FillHints));
    let step = Step::Write { map: 60, at: 0, key: 60, len: 200 * BLOCK };
    let after = step.applied(found);
    for done in [perform(volume, step, &after), volume.run(BackgroundStep::LeaveCleanly).map(drop)] {
        match done {
            Ok(()) => {}
            Err(Error::Corrupt { .. } | Error::Io { .. }) => return Verdict::Error,
            Err(error) => panic!("work answers {error:?}"),
        }
    }
    let is_whole = contents(volume).is_ok_and(|found| found == after);
    if is_whole { Verdict::Right } else { Verdict::Wrong }
}

fn print(verdicts: &BTreeMap<(String, Verdict), usize>) {
    for ((what, verdict), count) in verdicts {
        println!("{what:40} {verdict:?} {count}");
    }
}

#[test]
fn a_part_of_another_moment_or_volume_never_passes_unnoticed() {
    let (copies, others) = (history(1), history(2));
    let moments: Vec<&Model> = copies.iter().map(|copy| &copy.contents).collect();
    let mut verdicts = BTreeMap::new();
    for (n, into) in copies.iter().enumerate() {
        let older = copies[..n].iter().map(|from| ("older", from));
        let newer = copies[n + 1..].iter().map(|from| ("newer", from));
        let others = [&others[n], &others[others.len() - 1]].map(|from| ("another volume's", from));
        for (kind, from) in older.chain(newer).chain(others) {
            for part in PARTS {
                let mixed = with_part(&into.devices, part, &from.devices);
                let verdict = judge(&mixed, 1, &into.contents, &moments);
                let what = format!("{part} of {kind} copy '{}' in '{}': {verdict:?}", from.name, into.name);
                assert!(verdict < worst_of(part), "{what}");
                *verdicts.entry((format!("{kind} {part}"), verdict)).or_insert(0) += 1;
            }
        }
    }
    print(&verdicts);
    assert_eq!(verdicts.values().sum::<usize>(), copies.len() * (copies.len() + 1) * PARTS.len());
}

/// The worst permitted outcome for a foreign part. A data area that is older than the other parts is found by reading
/// it. Another volume's is refused by its label, which `volume.rs` checks. A log that ends too early is a volume that
/// committed less.
fn worst_of(part: &str) -> Verdict {
    match part {
        "data" | "log" => Verdict::Wrong,
        _ => Verdict::Other,
    }
}
