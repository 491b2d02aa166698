//! No flipped byte and no unreadable sector in the metadata of a volume with two copies costs a file, in a mounted,
//! unmounted or killed volume. The drill has 100 places in each file, on every profile with two copies: `scripts/flips
//! --places 100`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use oncefs_engine::Profile;
use oncefs_toolbox::Random;
use oncefs_toolbox::counts::{gate_or_drill, seed};

use crate::flips::volume::{Base, Mode, State};
use crate::unreadable_sectors::Unreadable;

const PAGE: u64 = 4096;
const SECTOR: u64 = 512;

/// The damage at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rot {
    Flip,
    Unreadable,
}

impl Rot {
    fn strike(self, path: &Path, at: u64, random: &mut Random) -> Option<Unreadable> {
        match self {
            Rot::Flip => {
                let file = File::options().read(true).write(true).open(path).unwrap();
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ (1 + random.below(255) as u8)], at).unwrap();
                None
            }
            Rot::Unreadable => {
                let sector = at / SECTOR * SECTOR;
                Some(Unreadable::at(path, sector..sector + SECTOR))
            }
        }
    }
}

/// A file in a state, its damage, and its pages that are not empty.
type Case = (State, Rot, PathBuf, Vec<u64>);

const STATES: [State; 3] = [State::InUse, State::Unmounted, State::Killed];

fn cases(base: &Base, states: &[State]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &state in states {
        for (name, pages) in base.metadata(state) {
            for rot in [Rot::Flip, Rot::Unreadable] {
                // The log has one copy: an unreadable sector keeps the volume closed, and fsck --cut-log opens it.
                if name.as_os_str() != "log" || rot == Rot::Flip {
                    cases.push((state, rot, name.clone(), pages.clone()));
                }
            }
        }
    }
    cases
}

/// The file whose name begins as that of `path` does, up to its number.
fn newest_like(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap().to_str().unwrap();
    let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let files = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.file_name().unwrap().to_str().unwrap().starts_with(kind)).max().expect(name)
}

/// Returns the number of damaged places.
fn strike_all(base: &Base, (state, rot, name, pages): &Case, each: u64, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    for _ in 0..each {
        let (mut at, strikes) = (0, random.word());
        let lost = base.lost_by(*state, |volume| {
            let path = volume.join(name);
            let Ok(len) = path.metadata().map(|metadata| metadata.len()) else {
                // An opening writes the manifest and some others under new names.
                return rot.strike(&newest_like(&path), 0, &mut Random::new(strikes));
            };
            let page = pages[random.below(pages.len() as u64) as usize] * PAGE;
            at = (page + random.below(PAGE)).min(len - 1);
            rot.strike(&path, at, &mut Random::new(strikes))
        });
        assert_eq!(lost, 0, "{state:?} {rot:?} {}: byte {at}", name.display());
    }
    each
}

/// Damages `each` places of every file of metadata in these states, on a volume of a profile. Returns the number of
/// places.
fn strike_everything(profile: Profile, states: &[State], each: u64, seed: u64) -> u64 {
    let base = Base::new(Mode::Two, profile, "/dev/shm");
    let cases = cases(&base, states);
    let names = |state: &State| cases.iter().filter(|case| case.0 == *state).count();
    assert!(states.iter().all(|state| names(state) > 15), "{cases:?}");
    let (work, all) = (Mutex::new(cases.iter().zip(seed..)), AtomicU64::new(0));
    let next = || work.lock().unwrap().next();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((case, seed)) = next() {
                    let struck = strike_all(&base, case, each, seed);
                    all.fetch_add(struck, Relaxed);
                    println!(
                        "{profile:?} {:?} {:?} {}: {struck} places, nothing lost",
                        case.0,
                        case.1,
                        case.2.display()
                    );
                }
            });
        }
    });
    all.into_inner()
}

#[test]
fn any_flipped_byte_or_unreadable_sector_of_metadata_costs_no_file() {
    strike_everything(Profile::Desktop, &STATES, gate_or_drill(2, 100), seed());
}

#[test]
#[ignore = "a drill: scripts/flips --places 100"]
fn many_places_of_every_file_on_every_profile_with_two_copies() {
    let each = std::env::var("ONCEFS_PLACES").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    // All of them, or the one that a variable names.
    let is_left_out = |variable: &str, name: String| std::env::var(variable).is_ok_and(|wanted| wanted != name);
    let states: Vec<State> =
        STATES.into_iter().filter(|state| !is_left_out("ONCEFS_STATE", format!("{state:?}").to_lowercase())).collect();
    let mut all = 0;
    for profile in [Profile::Desktop, Profile::Server, Profile::Selective] {
        if is_left_out("ONCEFS_PROFILE", format!("{profile:?}").to_lowercase()) {
            continue;
        }
        let places = strike_everything(profile, &states, each, seed());
        println!("{profile:?} {states:?}: {places} places, {each} in each file, nothing lost");
        all += places;
    }
    assert!(all > 0, "no profile or state has this name");
}
