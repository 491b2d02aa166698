//! The best choice against every choice there is.

use super::*;
use oncefs_toolbox::Random;

/// Of blocks with these holders; `free` says which cost nothing.
fn sharable<'a>(holders: &'a [Vec<Pbn>], free: &[bool]) -> Vec<Sharable<'a>> {
    holders.iter().zip(free).map(|(holders, free)| Sharable { holders, is_free: *free }).collect()
}

/// The pieces that a choice adds.
fn pieces_of(shared: &[Option<Pbn>], gap_blocks_max: u64) -> u64 {
    let (mut pieces, mut end) = (0, None);
    for pbn in shared.iter().flatten() {
        let goes_on = end.is_some_and(|end| (end..=end + gap_blocks_max).contains(&pbn.0));
        pieces += u64::from(!goes_on);
        end = Some(pbn.0 + 1);
    }
    pieces - u64::from(shared.last().is_some_and(Option::is_some))
}

/// The blocks that a choice shares, those at no cost included.
fn count(blocks: &[Sharable], shared: &[Option<Pbn>]) -> u64 {
    blocks.iter().zip(shared).filter(|(block, shared)| block.is_free || shared.is_some()).count() as u64
}

/// Tries everything.
fn brute_force(blocks: &[Sharable], pieces_max: u64, gap_blocks_max: u64, shared: &mut Vec<Option<Pbn>>) -> u64 {
    let Some(block) = blocks.get(shared.len()) else {
        return if pieces_of(shared, gap_blocks_max) <= pieces_max { count(blocks, shared) } else { 0 };
    };
    let choices = block.holders.iter().copied().map(Some).chain([None]);
    let tried = choices.map(|choice| {
        shared.push(choice);
        let most = brute_force(blocks, pieces_max, gap_blocks_max, shared);
        shared.pop();
        most
    });
    tried.max().expect("nothing can always be shared")
}

/// Up to ten blocks, of which sequences hold up to two each, as sources do that were stored in one piece.
fn random_holders(random: &mut Random) -> Vec<Vec<Pbn>> {
    let mut holders: Vec<Vec<Pbn>> = vec![Vec::new(); 1 + random.index(10)];
    for sequence in 1..=random.below(7) {
        let (first, skip) = (random.index(holders.len()), random.below(4));
        let mut pbn = 1_000 * sequence;
        for at in (first..holders.len()).take(1 + random.index(6)) {
            if holders[at].len() < 2 && !random.one_in(6) {
                holders[at].push(Pbn(pbn));
            }
            pbn += 1 + u64::from(skip == 0 && random.one_in(3));
        }
    }
    holders
}

#[test]
fn no_choice_within_the_budget_shares_more() {
    let mut random = Random::mixed(14);
    for case in 0..4_000 {
        let holders = random_holders(&mut random);
        let free: Vec<bool> = holders.iter().map(|_| random.one_in(8)).collect();
        let blocks = sharable(&holders, &free);
        for pieces_max in 0..5 {
            let best = best_within(&blocks, pieces_max, 0);
            let most = brute_force(&blocks, pieces_max, 0, &mut Vec::new());
            assert_eq!(best.blocks_max, most, "case {case}, {pieces_max} pieces: {holders:?} {free:?}");
            assert!(pieces_of(&best.shared, 0) <= pieces_max, "case {case}: {best:?}");
            assert_eq!(count(&blocks, &best.shared), most, "case {case}, {pieces_max} pieces: {holders:?} {free:?}");
        }
    }
}

#[test]
fn where_gaps_are_read_over_the_figure_is_never_less_and_rarely_more() {
    let mut random = Random::mixed(15);
    let (mut figures, mut most) = (0, 0);
    for case in 0..4_000 {
        let holders = random_holders(&mut random);
        let blocks = sharable(&holders, &vec![false; holders.len()]);
        let (pieces_max, gap_blocks_max) = (random.below(4), 1 + random.below(2));
        let best = best_within(&blocks, pieces_max, gap_blocks_max);
        let of_all = brute_force(&blocks, pieces_max, gap_blocks_max, &mut Vec::new());
        assert!(best.blocks_max >= of_all, "case {case}: {} and {of_all} of {holders:?}", best.blocks_max);
        assert!(pieces_of(&best.shared, gap_blocks_max) <= pieces_max, "case {case}: {best:?}");
        (figures, most) = (figures + best.blocks_max, most + of_all);
    }
    println!("{figures} of {most} blocks");
    assert!(figures * 1_000 <= most * 1_005, "{figures} instead of {most} blocks");
}

#[test]
fn at_the_budget_of_each_number_of_pieces_the_first_of_equal_blocks_are_shared() {
    let holders: Vec<Vec<Pbn>> =
        (0..20).map(|at| if at % 2 == 0 { vec![Pbn(100 * (at + 1))] } else { vec![] }).collect();
    let blocks = sharable(&holders, &[false; 20]);
    for pieces_max in 0..=10 {
        let best = best_within(&blocks, pieces_max, 0);
        let shared: Vec<usize> = (0..20).filter(|at| best.shared[*at].is_some()).collect();
        assert_eq!(shared, (0..pieces_max as usize).map(|at| 2 * at).collect::<Vec<_>>());
        assert_eq!(best.blocks_max, pieces_max);
    }
}
