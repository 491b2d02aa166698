//! Ranks of files on volumes in memory: the effect of reads, writes and time on them, also across restarts, power
//! failures and jumps of the clock, and the effect of a rank on a file's blocks. The engine tests when the worker
//! ranks. Here the tests call it.

mod volume;

use crate::common::{ROOT, file};
use oncefs_engine::{BLOCK_BYTES, BackgroundStep, DefragOptions, Rank, ShareLimit, Slowdown};
use oncefs_fs::{FileSystem, Ino, Privileges, SetAttributes, XattrMode};
use oncefs_toolbox::Random;

use volume::{
    BLOCK, BY_CALLER, Volume, assert_sound, counted, effective_policy, rank, rank_of, read_at_random, read_in_sequence,
    small, unique, written,
};

#[test]
fn files_get_the_rank_that_their_use_says() {
    let volume = Volume::new();
    let fs = volume.open();
    let [sequential, random, seldom, unread] =
        ["sequential", "random", "seldom", "unread"].map(|name| small(&fs, name));
    let all = [sequential, random, seldom, unread];
    let ranks = || all.map(|ino| rank_of(&fs, ino));
    rank(&fs);
    volume.days(1);
    read_in_sequence(&fs, sequential, 100);
    read_at_random(&fs, random, 100);
    read_in_sequence(&fs, seldom, 96);
    rank(&fs);
    assert_eq!(ranks(), [Rank::New; 4], "written too short a time ago");
    volume.days(2);
    rank(&fs);
    assert_eq!(ranks(), [Rank::Sequential, Rank::Random, Rank::New, Rank::New]);
    assert_eq!(counted(&fs), [2, 1, 1, 0]);
    volume.days(14);
    rank(&fs);
    assert_eq!(ranks(), [Rank::Sequential, Rank::Random, Rank::New, Rank::Cold], "two weeks after its creation");
    volume.days(15);
    read_at_random(&fs, random, 1);
    rank(&fs);
    assert_eq!(ranks(), [Rank::Cold, Rank::Random, Rank::New, Rank::Cold]);
    volume.days(17);
    rank(&fs);
    assert_eq!(ranks(), [Rank::Cold, Rank::Random, Rank::Cold, Rank::Cold], "those of queue 0 are looked at in turn");
    volume.days(29);
    rank(&fs);
    assert_eq!((ranks(), counted(&fs)), ([Rank::Cold; 4], vec![0, 0, 0, 4]));
    assert_eq!(rank(&fs), 0, "nothing is due any more");
    assert_sound(&fs);
}

#[test]
fn a_file_that_is_written_is_to_be_judged_again_whatever_its_rank() {
    let volume = Volume::new();
    let fs = volume.open();
    let names = ["sequential", "random", "cold"];
    let files = names.map(|name| small(&fs, name));
    rank(&fs);
    volume.days(3);
    read_in_sequence(&fs, files[0], 100);
    read_at_random(&fs, files[1], 100);
    rank(&fs);
    volume.days(14);
    rank(&fs);
    assert_eq!(files.map(|ino| rank_of(&fs, ino)), [Rank::Sequential, Rank::Random, Rank::Cold]);
    for ino in files {
        fs.write(ino, BLOCK, &unique(99, 1), BY_CALLER).unwrap();
    }
    assert_eq!(files.map(|ino| rank_of(&fs, ino)), [Rank::New; 3]);
    rank(&fs);
    assert_eq!(counted(&fs), [3, 0, 0, 0]);
    assert_sound(&fs);
    read_in_sequence(&fs, files[2], 200);
    volume.days(16);
    rank(&fs);
    assert_eq!(
        files.map(|ino| rank_of(&fs, ino)),
        [Rank::New, Rank::New, Rank::Sequential],
        "counters begin with a rank"
    );
    let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
    fs.setattr(files[2], &empty).unwrap();
    assert_eq!(rank_of(&fs, files[2]), Rank::New);
    assert_sound(&fs);
}

#[test]
fn a_cold_file_that_is_read_is_judged_again() {
    let volume = Volume::new();
    let fs = volume.open();
    let ino = small(&fs, "old");
    rank(&fs);
    volume.days(20);
    rank(&fs);
    assert_eq!(rank_of(&fs, ino), Rank::Cold);
    volume.days(21);
    read_in_sequence(&fs, ino, 100);
    fs.publish_reads().unwrap();
    assert_eq!((rank_of(&fs, ino), counted(&fs)), (Rank::New, vec![1, 0, 0, 0]));
    rank(&fs);
    assert_eq!(rank_of(&fs, ino), Rank::New, "it was put to the top of its queue");
    volume.days(23);
    rank(&fs);
    assert_eq!(rank_of(&fs, ino), Rank::Sequential);
    assert_sound(&fs);
}

#[test]
fn a_file_rewritten_on_two_days_is_left_alone_until_it_gets_a_rank() {
    let volume = Volume::new();
    let fs = volume.open();
    let ino = small(&fs, "daily");
    for day in 0..5 {
        volume.days(day);
        fs.write(ino, 0, &unique(100 + day as u64, 4), BY_CALLER).unwrap();
        rank(&fs);
        assert_eq!(rank_of(&fs, ino), Rank::New);
        let effective_policy = effective_policy(&fs, ino);
        assert_eq!((effective_policy.is_inline, effective_policy.is_later), (day == 0, day == 0), "day {day}");
    }
    assert_sound(&fs);
    volume.days(30);
    rank(&fs);
    assert_eq!(rank_of(&fs, ino), Rank::Cold);
    assert!(effective_policy(&fs, ino).is_later, "rewritten no more");
    assert_sound(&fs);
}

#[test]
fn files_that_were_there_before_anybody_ranked_get_ranks_too() {
    let volume = Volume::new();
    let fs = volume.open_with(&[("ranks", "off")]);
    let make = |n: u32| {
        if n.is_multiple_of(100) {
            fs.store().commit().unwrap();
        }
        file(&fs, Ino::ROOT, &format!("file {n}")).ino
    };
    let files: Vec<Ino> = (0..1_000).map(make).collect();
    assert_eq!(rank(&fs), 0);
    fs.store().commit().unwrap();
    drop(fs);
    volume.days(1);
    let fs = volume.open();
    read_in_sequence(&fs, written(&fs, "new", &unique(3, 2)), 100);
    rank(&fs);
    assert_eq!(counted(&fs), [1_001, 0, 0, 0], "of most of them nothing is known");
    assert_sound(&fs);
    volume.days(2);
    fs.opened(files[7]);
    volume.days(3);
    rank(&fs);
    assert_eq!(counted(&fs), [1, 1, 0, 999], "who was used in the time of a first look is hot");
    assert_eq!((rank_of(&fs, files[7]), rank_of(&fs, files[8])), (Rank::New, Rank::Cold));
    assert_sound(&fs);
    volume.days(16);
    rank(&fs);
    assert!(files.iter().all(|ino| rank_of(&fs, *ino) == Rank::Cold), "used no more");
    assert_sound(&fs);
}

#[test]
fn places_of_deleted_files_are_dropped_when_their_time_comes() {
    let volume = Volume::new();
    let fs = volume.open();
    let places = || fs.store().scan(b"q", b"r", usize::MAX).unwrap().len();
    for n in 0..200 {
        let name = format!("file {n}");
        let ino = file(&fs, Ino::ROOT, &name).ino;
        if n == 99 {
            rank(&fs);
        }
        if n < 150 {
            fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
            fs.forget(ino).unwrap();
        }
    }
    rank(&fs);
    assert_eq!((places(), counted(&fs)), (50, vec![50, 0, 0, 0]), "that of one which the queue knew came to the tail");
    volume.days(14);
    rank(&fs);
    assert_eq!((places(), counted(&fs)), (0, vec![0, 0, 0, 50]));
    assert_sound(&fs);
}

/// A file that is made without a name (O_TMPFILE).
fn nameless(fs: &FileSystem, key: u64) -> Ino {
    let ino = fs.tmpfile(Ino::ROOT, 0o600, &ROOT).unwrap().ino;
    fs.write(ino, 0, &unique(key, 4), BY_CALLER).unwrap();
    ino
}

#[test]
fn a_file_that_the_ranker_saw_without_a_name_gets_a_place_with_its_first_one() {
    let mut volume = Volume::new();
    let mut fs = volume.open();
    let places = |fs: &FileSystem| fs.store().scan(b"q", b"r", usize::MAX).unwrap().len();
    let seen = nameless(&fs, 1);
    rank(&fs);
    let unseen = nameless(&fs, 2);
    assert_eq!(places(&fs), 0, "without a name it needs none");
    for (ino, name) in [(seen, "seen"), (unseen, "unseen")] {
        fs.link(ino, Ino::ROOT, name.as_bytes()).unwrap();
        assert_eq!(places(&fs), 1, "{name}: only the ranker's step over a file has to be made up for");
    }
    fs.store().commit().unwrap();
    drop(fs);
    volume = volume.after_power_cut();
    fs = volume.open();
    assert_sound(&fs);
    rank(&fs);
    assert_eq!(places(&fs), 2);
    volume.days(14);
    rank(&fs);
    assert_eq!([seen, unseen].map(|ino| rank_of(&fs, ino)), [Rank::Cold; 2], "their turn came");
    assert_sound(&fs);
}

/// A file whose blocks come from two others in turn, and its content.
fn stitched(fs: &FileSystem, blocks: u64) -> (Ino, Vec<u8>) {
    let contents = [unique(1, blocks), unique(2, blocks)];
    let sources = [written(fs, "even", &contents[0]), written(fs, "odd", &contents[1])];
    let ino = file(fs, Ino::ROOT, "stitched").ino;
    for at in 0..blocks {
        fs.copy_file_range(sources[at as usize % 2], at * BLOCK, ino, at * BLOCK, BLOCK, Privileges::Kept).unwrap();
        if at.is_multiple_of(500) {
            fs.store().commit().unwrap();
        }
    }
    let block = |at: u64| &contents[at as usize % 2][(at * BLOCK) as usize..((at + 1) * BLOCK) as usize];
    (ino, (0..blocks).flat_map(block).copied().collect())
}

fn extents(fs: &FileSystem, ino: Ino) -> u64 {
    let look = DefragOptions { run_blocks_min: Some(64), dry_run: true, ..DefragOptions::default() };
    fs.defrag(ino, &look).unwrap().extents_before
}

#[test]
fn a_file_for_rank_1_is_laid_out_in_long_runs_first_and_one_that_is_written_meanwhile_keeps_its_rank() {
    const BLOCKS: u64 = 6_000;
    let volume = Volume::new();
    let fs = volume.open();
    let (ino, content) = stitched(&fs, BLOCKS);
    assert_eq!(extents(&fs, ino), BLOCKS);
    read_in_sequence(&fs, ino, BLOCKS);
    rank(&fs);
    volume.days(2);
    let defragmented = || fs.report().counters["blocks_defragmented"];
    while defragmented() == 0 {
        assert!(fs.store().run(BackgroundStep::Rank).unwrap());
    }
    assert!(defragmented() < BLOCKS, "a part at a time");
    assert_eq!(rank_of(&fs, ino), Rank::New);
    fs.write(ino, 0, &content[..BLOCK_BYTES], BY_CALLER).unwrap();
    rank(&fs);
    assert_eq!(rank_of(&fs, ino), Rank::New);
    assert!(defragmented() < BLOCKS, "the rest waits");
    volume.days(4);
    rank(&fs);
    assert_eq!((rank_of(&fs, ino), defragmented()), (Rank::Sequential, BLOCKS));
    assert!(extents(&fs, ino) <= BLOCKS / 64, "{} extents", extents(&fs, ino));
    let effective_policy = effective_policy(&fs, ino);
    assert_eq!(effective_policy.limit, ShareLimit::Budget(Slowdown(10)));
    assert!(*fs.read(ino, 0, content.len(), false).unwrap() == *content);
    assert_sound(&fs);
}

#[test]
fn a_file_whose_policy_leaves_it_alone_is_ranked_and_not_laid_out() {
    let volume = Volume::new();
    let fs = volume.open();
    let (ino, _) = stitched(&fs, 200);
    fs.setxattr(ino, b"user.oncefs.policy", b"off", XattrMode::Any, true).unwrap();
    read_in_sequence(&fs, ino, 200);
    rank(&fs);
    volume.days(2);
    rank(&fs);
    assert_eq!((rank_of(&fs, ino), extents(&fs, ino)), (Rank::Sequential, 200));
    assert!(!effective_policy(&fs, ino).is_later);
    assert_sound(&fs);
}

#[test]
fn a_file_that_gets_rank_2_or_3_shares_every_block_with_others() {
    for days in [2, 14] {
        let volume = Volume::new();
        let fs = volume.open_with(&[("ranks", "on"), ("run_blocks_min", "16")]);
        let first = written(&fs, "first", &unique(1, 64));
        let mut content = unique(2, 64);
        for at in (0..64).step_by(4) {
            content[at * BLOCK_BYTES..][..BLOCK_BYTES]
                .copy_from_slice(&unique(1, 64)[at * BLOCK_BYTES..][..BLOCK_BYTES]);
        }
        let second = written(&fs, "second", &content);
        while fs.store().run(BackgroundStep::Revisit { blocks_max: 256 }).unwrap() {}
        let before = fs.store().totals().used.0;
        if days == 2 {
            [first, second].iter().for_each(|ino| read_at_random(&fs, *ino, 100));
        }
        rank(&fs);
        volume.days(days);
        rank(&fs);
        let expected = if days == 2 { Rank::Random } else { Rank::Cold };
        assert_eq!([first, second].map(|ino| rank_of(&fs, ino)), [expected; 2]);
        while fs.store().run(BackgroundStep::Revisit { blocks_max: 256 }).unwrap() {}
        assert_eq!(fs.store().totals().used.0, before - 16, "rank {expected:?}");
        assert!(*fs.read(second, 0, content.len(), false).unwrap() == *content);
        assert_sound(&fs);
    }
}

#[test]
fn in_the_papers_profile_a_file_is_not_shared_before_it_has_a_rank() {
    let volume = Volume::new();
    let fs = volume.open_with(&[("ranks", "paper")]);
    let files = ["one", "two"].map(|name| written(&fs, name, &unique(5, 70)));
    let all = || while fs.store().run(BackgroundStep::Revisit { blocks_max: 256 }).unwrap() {};
    rank(&fs);
    all();
    let before = fs.store().totals().used.0;
    volume.days(2);
    files.iter().for_each(|ino| read_in_sequence(&fs, *ino, 140));
    rank(&fs);
    all();
    assert_eq!(files.map(|ino| rank_of(&fs, ino)), [Rank::Sequential; 2]);
    assert!(before - fs.store().totals().used.0 >= 64, "the run of 64 blocks is shared");
    fs.write(files[0], 0, &unique(6, 1), BY_CALLER).unwrap();
    assert!(!effective_policy(&fs, files[0]).is_later, "it is new again");
    assert_sound(&fs);
}

/// Files with all kinds of use, created and used within two days, and the ranks that they deserve.
fn used_files(volume: &Volume, fs: &FileSystem) -> Vec<(Ino, Rank)> {
    let files: Vec<Ino> = (0..90).map(|n| small(fs, &format!("file {n}"))).collect();
    let (broken, _) = stitched(fs, 300);
    volume.days(1);
    for (n, ino) in files.iter().enumerate() {
        match n % 3 {
            0 => read_in_sequence(fs, *ino, 100),
            1 => read_at_random(fs, *ino, 100),
            _ => {}
        }
    }
    read_in_sequence(fs, broken, 300);
    fs.publish_reads().unwrap();
    let deserved = [Rank::Sequential, Rank::Random, Rank::New];
    let ranked = files.into_iter().enumerate().map(|(n, ino)| (ino, deserved[n % 3]));
    ranked.chain([(broken, Rank::Sequential)]).collect()
}

#[test]
fn ranking_goes_on_wherever_a_power_cut_ended_it() {
    let volume = Volume::new();
    let fs = volume.open();
    let files = used_files(&volume, &fs);
    fs.store().commit().unwrap();
    drop(fs);
    let mut cut_after = 0;
    loop {
        let cut = volume.after_power_cut();
        cut.days(2);
        let fs = cut.open();
        let is_over = (0..cut_after).any(|_| !fs.store().run(BackgroundStep::Rank).unwrap());
        // Every other time the last changes are durable.
        fs.store().commit().unwrap();
        if cut_after % 2 == 1 {
            fs.store().run(BackgroundStep::Rank).unwrap();
        }
        drop(fs);
        let cut = cut.after_power_cut();
        let fs = cut.open();
        assert_sound(&fs);
        rank(&fs);
        for (ino, deserved) in &files {
            assert_eq!(rank_of(&fs, *ino), *deserved, "inode {}, cut after {cut_after} turns", ino.0);
        }
        assert_sound(&fs);
        if is_over {
            break;
        }
        cut_after += 1;
    }
    assert!(cut_after > 5, "only {cut_after} turns");
}

#[test]
fn a_clock_that_jumps_leaves_files_that_are_ranked_by_the_new_time() {
    for jump in [-3_650, -1, 0, 1, 3_650] {
        let volume = Volume::new();
        let fs = volume.open();
        let files = used_files(&volume, &fs);
        rank(&fs);
        let days = 1 + jump;
        volume.days(days);
        rank(&fs);
        assert_sound(&fs);
        for (ino, _) in files.iter().filter(|(_, deserved)| *deserved == Rank::Sequential) {
            read_in_sequence(&fs, *ino, 200);
        }
        fs.publish_reads().unwrap();
        volume.days(days + 2);
        rank(&fs);
        // After a jump ahead all files were cold for a time, and those read since were ranked again.
        for (ino, deserved) in &files {
            let rank = rank_of(&fs, *ino);
            let is_sane = rank == *deserved || jump > 14 && rank == Rank::Cold;
            assert!(is_sane, "jump of {jump} days: inode {} should be {deserved:?} and is {rank:?}", ino.0);
        }
        volume.days(days + 40);
        rank(&fs);
        assert!(files.iter().all(|(ino, _)| rank_of(&fs, *ino) == Rank::Cold), "jump of {jump} days");
        assert_sound(&fs);
    }
}

#[test]
fn bounds_of_zero_rank_within_a_second_and_come_to_an_end() {
    let volume = Volume::new();
    let mut seconds = 0;
    for (reads_min, hot, expected) in [
        ("0", "1209600", [Rank::Sequential, Rank::Random]),
        ("9", "1209600", [Rank::Sequential, Rank::New]),
        ("0", "0", [Rank::Cold; 2]),
    ] {
        let zero = [("ranks", "on"), ("rank_evaluation_seconds_min", "0"), ("rank_evaluation_reads_min", reads_min)];
        let fs = volume.open_with(&[&zero[..], &[("rank_hot_seconds_max", hot)]].concat());
        let files = ["read", "unread"].map(|name| small(&fs, &format!("{name} {reads_min} {hot}")));
        read_in_sequence(&fs, files[0], 10);
        seconds += 1;
        volume.seconds(seconds);
        rank(&fs);
        assert_eq!(files.map(|ino| rank_of(&fs, ino)), expected, "reads {reads_min}, hot {hot}");
        assert_sound(&fs);
        fs.store().commit().unwrap();
    }
}

/// Files are used, time passes and jumps, the volume is closed or loses power. In every case the records agree and no
/// file is forgotten.
fn use_at_random(seed: u64) {
    const FILES: u64 = 12;
    let mut random = Random::new(seed);
    let mut volume = Volume::new();
    let mut fs = volume.open();
    let mut day = 0;
    for step in 0..150 {
        let name = format!("file {}", random.below(FILES));
        let found = fs.lookup(Ino::ROOT, name.as_bytes()).map(|attributes| attributes.ino).ok();
        match (random.below(16), found) {
            (0..4, None) => drop(small(&fs, &name)),
            (4..6, None) => {
                let ino = nameless(&fs, step);
                match random.below(3) {
                    0 => {}
                    1 => drop(fs.store().run(BackgroundStep::Rank).unwrap()),
                    _ => drop(rank(&fs)),
                }
                fs.link(ino, Ino::ROOT, name.as_bytes()).unwrap();
            }
            (0, Some(ino)) => {
                fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
                fs.forget(ino).unwrap();
            }
            (1, Some(ino)) => drop(fs.write(ino, random.below(4) * BLOCK, &unique(step, 2), BY_CALLER).unwrap()),
            (2, Some(ino)) => {
                let size = Some(random.below(2) * 4 * BLOCK);
                fs.setattr(ino, &SetAttributes { size, ..SetAttributes::default() }).map(drop).unwrap();
            }
            (3 | 4, Some(ino)) if fs.getattr(ino).unwrap().size >= 4 * BLOCK => match random.below(2) {
                0 => read_in_sequence(&fs, ino, 100),
                _ => read_at_random(&fs, ino, 100),
            },
            (6..9, _) => day += 1 + random.below(3) as i64,
            (9, _) => day = random.below(60) as i64 - 20,
            (10, _) => fs.publish_reads().unwrap(),
            (11, _) => {
                fs.store().run(BackgroundStep::Rank).unwrap();
            }
            (12, _) => drop(rank(&fs)),
            (13, _) => fs.store().commit().unwrap(),
            (14, _) => {
                fs.close().unwrap();
                fs.store().commit().unwrap();
                drop(fs);
                fs = volume.open();
            }
            (15, _) if random.below(2) == 0 => {
                drop(fs);
                volume = volume.after_power_cut();
                fs = volume.open();
                assert_sound(&fs);
            }
            _ => {}
        }
        volume.days(day);
    }
    assert_sound(&fs);
    fs.publish_reads().unwrap();
    rank(&fs);
    // Later than any future moment that a clock which jumped back may have left.
    volume.days(day + 1_000);
    rank(&fs);
    assert_sound(&fs);
    let names = crate::common::names(&fs, Ino::ROOT);
    for name in names {
        let ino = fs.lookup(Ino::ROOT, &name).unwrap().ino;
        assert_eq!(rank_of(&fs, ino), Rank::Cold, "seed {seed}: inode {} was forgotten", ino.0);
    }
}

#[test]
fn no_file_is_forgotten_by_the_queues_whatever_happens() {
    for seed in 0..60 {
        let attempt = std::panic::catch_unwind(|| use_at_random(seed));
        assert!(attempt.is_ok(), "seed {seed}");
    }
}
