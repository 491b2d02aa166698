//! The automatic `run_blocks_min` against every fixed one: files of many kinds, laid out and read in values.
//!
//! The sum is that of lost savings and of read time added, in blocks, each file read once. Nothing here uses the rule's
//! own formula: files are laid out block by block, and requests to the device are counted as the engine makes them.

use oncefs_dedup::ReadPattern;

/// As the engine reads: in requests of so many blocks, parts sorted from so many parts on, small gaps read over.
const REQUEST_BLOCKS: usize = 256;
const SCATTERED_PARTS_MIN: usize = 8;
const GAP_BLOCKS_MAX: u64 = 8;
/// Far from every other run.
const FAR: u64 = 1 << 20;
const FILE_BLOCKS: usize = 4_096;
const FILES_PER_KIND: u64 = 6;
const FIXED: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const SEED: u64 = 20_260_802;

/// Not the common generator: the figures of decision 0024 come from this sequence.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A kind of file.
struct Kind {
    name: &'static str,
    /// Lengths of the runs that its duplicates are in.
    runs: (u64, u64),
    /// New blocks between them.
    new: (u64, u64),
    /// Blocks written in one go; the next go lies elsewhere.
    written: u64,
    /// Of 10 blocks, how many are read in sequence; the others one by one anywhere.
    sequential_tenths: u64,
    /// Whether it was read before it is deduplicated.
    is_known: bool,
}

const WHOLE: u64 = FILE_BLOCKS as u64;

const KINDS: [Kind; 8] = [
    kind("stitched of small runs", (1, 3), (0, 0), WHOLE, 10, false),
    kind("stitched of large runs", (16, 64), (0, 0), WHOLE, 10, false),
    kind("versions of a source tree", (1, 40), (1, 10), WHOLE, 10, true),
    kind("long runs in new data", (8, 300), (50, 400), WHOLE, 10, true),
    kind("database", (1, 4), (0, 3), 2, 0, true),
    kind("disk image, backed up", (1, 6), (0, 6), 4, 9, true),
    kind("mailbox, read here and there", (1, 12), (0, 12), WHOLE, 3, true),
    kind("never read before, short and long", (1, 64), (0, 8), WHOLE, 10, false),
];

const fn kind(
    name: &'static str,
    runs: (u64, u64),
    new: (u64, u64),
    written: u64,
    sequential_tenths: u64,
    is_known: bool,
) -> Kind {
    Kind { name, runs, new, written, sequential_tenths, is_known }
}

/// A file as ranges of blocks: duplicates that follow each other elsewhere, or new ones.
struct File {
    ranges: Vec<(usize, bool)>,
    written: u64,
}

impl File {
    fn of(kind: &Kind, numbers: &mut Numbers) -> Self {
        let (mut ranges, mut blocks) = (Vec::new(), 0);
        let mut within = |(least, most): (u64, u64)| (least + numbers.below(most - least + 1)) as usize;
        while blocks < FILE_BLOCKS {
            let (run, new) = (within(kind.runs), within(kind.new));
            ranges.extend([(run, true), (new, false)]);
            blocks += run + new;
        }
        Self { ranges, written: kind.written }
    }

    /// Where each block lies if runs from `run_blocks_min` on are shared, and how many duplicates are stored again.
    fn laid_out(&self, run_blocks_min: u32) -> (Vec<u64>, u64) {
        let (mut places, mut lost, mut next_run) = (Vec::new(), 0, FAR);
        let (mut own, mut own_go) = (0, u64::MAX);
        for &(blocks, is_duplicate) in &self.ranges {
            if is_duplicate && blocks as u64 >= u64::from(run_blocks_min) {
                places.extend((0..blocks as u64).map(|n| next_run + n));
                next_run += FAR;
                continue;
            }
            lost += if is_duplicate { blocks as u64 } else { 0 };
            for _ in 0..blocks {
                let go = places.len() as u64 / self.written;
                if own_go != go {
                    // The first go, and each at another time.
                    (own, own_go, next_run) = (next_run, go, next_run + FAR);
                }
                places.push(own);
                own += 1;
            }
        }
        (places, lost)
    }
}

/// Time to read a file from its beginning to its end, in blocks.
fn scan_time(places: &[u64], seek_blocks: f64) -> f64 {
    places.chunks(REQUEST_BLOCKS).map(|request| request_time(request, seek_blocks)).sum()
}

fn request_time(places: &[u64], seek_blocks: f64) -> f64 {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for &place in places {
        match parts.last_mut() {
            Some((_, end)) if *end == place => *end += 1,
            _ => parts.push((place, place + 1)),
        }
    }
    if parts.len() >= SCATTERED_PARTS_MIN {
        parts.sort_unstable();
        parts.dedup_by(|(start, end), (_, before)| {
            let is_near = *start <= *before + GAP_BLOCKS_MAX;
            *before = if is_near { *end } else { *before };
            is_near
        });
    }
    parts.iter().map(|(start, end)| seek_blocks + (end - start) as f64).sum()
}

/// What the engine would know of the file before it is deduplicated.
fn pattern(kind: &Kind, file: &File, numbers: &mut Numbers) -> ReadPattern {
    let mut pattern = ReadPattern::default();
    if !kind.is_known {
        return pattern;
    }
    let (places, _) = file.laid_out(u32::MAX);
    for request in places.chunks(REQUEST_BLOCKS) {
        if numbers.below(10) < kind.sequential_tenths {
            let apart = request.windows(2).filter(|two| two[0] + 1 != two[1]).count() as u32;
            pattern.read(request.len() as u32, true);
            pattern.lies(request.len() as u32 - 1 - apart, apart);
        } else {
            (0..request.len()).for_each(|_| pattern.read(1, false));
        }
    }
    pattern
}

/// Lost savings and added read time of one file, in blocks.
fn cost(kind: &Kind, file: &File, run_blocks_min: u32, seek_blocks: f64) -> (f64, f64) {
    let (places, lost) = file.laid_out(run_blocks_min);
    let (undivided, _) = file.laid_out(u32::MAX);
    let added = scan_time(&places, seek_blocks) - scan_time(&undivided, seek_blocks);
    (lost as f64, added * kind.sequential_tenths as f64 / 10.0)
}

/// Both sums over all files, with the number that `choose` gives each.
fn sums(seek_blocks: f64, choose: impl Fn(&ReadPattern) -> u32) -> (f64, f64) {
    let mut numbers = Numbers(SEED);
    let (mut lost, mut added) = (0.0, 0.0);
    for kind in KINDS.iter().flat_map(|kind| (0..FILES_PER_KIND).map(move |_| kind)) {
        let file = File::of(kind, &mut numbers);
        let number = choose(&pattern(kind, &file, &mut numbers));
        let (file_lost, file_added) = cost(kind, &file, number, seek_blocks);
        (lost, added) = (lost + file_lost, added + file_added);
    }
    (lost, added)
}

#[test]
fn the_automatic_number_beats_every_fixed_one() {
    println!("seed {SEED}; blocks lost + blocks of read time added = sum");
    for seek_blocks in [4.0, 6.1, 10.0, 25.0, 60.0] {
        let (lost, added) = sums(seek_blocks, |pattern| pattern.run_blocks_min(seek_blocks, None));
        let automatic = lost + added;
        println!("a seek costs {seek_blocks:>4}  auto {lost:>8.0} + {added:>8.0} = {automatic:>8.0}");
        for fixed in FIXED {
            let (lost, added) = sums(seek_blocks, |_| fixed);
            println!("                     {fixed:>4} {lost:>8.0} + {added:>8.0} = {:>8.0}", lost + added);
            assert!(automatic < lost + added, "{fixed} is better where a seek costs {seek_blocks}, seed {SEED}");
        }
    }
}

#[test]
fn each_kind_of_file_costs_hardly_more_than_with_the_number_that_is_best_for_it() {
    for (seek_blocks, kind) in [6.1, 10.0, 25.0].into_iter().flat_map(|k| KINDS.iter().map(move |kind| (k, kind))) {
        let mut numbers = Numbers(SEED);
        let file = File::of(kind, &mut numbers);
        let number = pattern(kind, &file, &mut numbers).run_blocks_min(seek_blocks, None);
        let sum = |number| {
            let (lost, added) = cost(kind, &file, number, seek_blocks);
            lost + added
        };
        let best = (1..=64).min_by(|&a, &b| f64::total_cmp(&sum(a), &sum(b))).expect("there are numbers");
        let name = kind.name;
        println!(
            "{seek_blocks:>4} {name:<36} auto {number:>2}: {:>5.0}  best {best:>2}: {:>5.0}",
            sum(number),
            sum(best)
        );
        let bound = sum(best) + FILE_BLOCKS as f64 * 0.1;
        assert!(
            sum(number) <= bound,
            "{name}: {number} instead of {best} where a seek costs {seek_blocks}, seed {SEED}"
        );
    }
}
