//! The properties of every answer of the detector.

use super::*;

/// Panics unless
/// 1. a share is with a holder that is looked at, and a block that the file has keeps its pbn;
/// 2. a run of shares has at least `run_blocks_min` blocks, or `end_blocks_min` at the end, or all of them stay;
/// 3. no range of that many blocks is left, none of them shared or open, that have holders in a row;
/// 4. no run that is long enough could have one block more that is neither shared nor open;
/// 5. exactly what has no holder is unknown;
/// 6. open blocks come last, only if the file may go on, and have holders in a row that began so few blocks before.
pub fn check(blocks: &[Candidates], rule: RunRule, decisions: &[Decision]) {
    let told = || format!("{blocks:?} {rule:?}: {decisions:?}");
    assert_eq!(blocks.len(), decisions.len(), "{}", told());
    let is_right = |(block, decision): (&Candidates, &Decision)| match decision {
        Decision::Share(pbn) => looked_at(block).contains(pbn) && (!stays(block) || block.current == Some(*pbn)),
        Decision::Unknown => block.holders.is_empty(),
        Decision::Refused | Decision::Open => !block.holders.is_empty() && !stays(block),
    };
    assert!(blocks.iter().zip(decisions).all(is_right), "1 or 5: {}", told());
    for run in runs_of(decisions) {
        match run.decision {
            Decision::Share(pbn) => check_shared(blocks, rule, decisions, run, pbn, &told),
            Decision::Open => check_open(blocks, rule, run, &told),
            Decision::Unknown | Decision::Refused => (),
        }
    }
    check_left(blocks, rule, decisions, &told);
}

fn min(rule: RunRule) -> usize {
    rule.run_blocks_min.max(1) as usize
}

/// The holders that a block can be shared with.
pub fn looked_at<'a>(block: &'a Candidates<'_>) -> &'a [Pbn] {
    match &block.current {
        Some(pbn) if stays(block) => std::slice::from_ref(pbn),
        _ => &block.holders[..block.holders.len().min(HOLDERS_MAX)],
    }
}

/// Whether the file has this content at its place already.
pub fn stays(block: &Candidates) -> bool {
    block.current.is_some_and(|pbn| block.holders.contains(&pbn))
}

/// Whether the block at this index can be shared with a pbn.
pub fn holds(blocks: &[Candidates], index: usize, pbn: Pbn) -> bool {
    blocks.get(index).is_some_and(|block| looked_at(block).contains(&pbn))
}

fn is_left(decision: Option<&Decision>) -> bool {
    matches!(decision, Some(Decision::Unknown | Decision::Refused))
}

fn check_shared(
    blocks: &[Candidates],
    rule: RunRule,
    decisions: &[Decision],
    run: DecidedRun,
    pbn: Pbn,
    told: &dyn Fn() -> String,
) {
    let end = run.first + run.blocks;
    let is_end = end == blocks.len() && rule.end_blocks_min.is_some_and(|min| run.blocks >= min.max(1) as usize);
    if run.blocks < min(rule) && !is_end {
        assert!(blocks[run.first..end].iter().all(stays), "2: {run} of {}", told());
        return;
    }
    let goes_on = is_left(decisions.get(end)) && holds(blocks, end, pbn.plus(run.blocks as u64));
    assert!(!goes_on, "4: behind {run} of {}", told());
    let Some(before) = run.first.checked_sub(1) else { return };
    let began = is_left(decisions.get(before)) && pbn.0 > 0 && holds(blocks, before, Pbn(pbn.0 - 1));
    assert!(!began, "4: before {run} of {}", told());
}

/// Some sequence through all open blocks is shorter than the minimum.
fn check_open(blocks: &[Candidates], rule: RunRule, run: DecidedRun, told: &dyn Fn() -> String) {
    assert!(rule.may_go_on && run.first + run.blocks == blocks.len(), "6: {run} of {}", told());
    let is_open = |pbn: &Pbn| {
        let is_through = (0..run.blocks).all(|n| holds(blocks, run.first + n, pbn.plus(n as u64)));
        let goes_back = |n: &usize| pbn.0 >= *n as u64 && holds(blocks, run.first - n, Pbn(pbn.0 - *n as u64));
        let before = (1..=run.first).take_while(goes_back).count();
        is_through && before + run.blocks < min(rule)
    };
    assert!(looked_at(&blocks[run.first]).iter().any(is_open), "6: {run} of {}", told());
}

fn check_left(blocks: &[Candidates], rule: RunRule, decisions: &[Decision], told: &dyn Fn() -> String) {
    for (first, block) in blocks.iter().enumerate() {
        let is_missed = |pbn: &Pbn| {
            let could = |n: usize| is_left(decisions.get(first + n)) && holds(blocks, first + n, pbn.plus(n as u64));
            let to_end = blocks.len() - first;
            let is_end = rule.end_blocks_min.is_some_and(|min| to_end >= min.max(1) as usize);
            (0..min(rule)).all(could) || (is_end && (0..to_end).all(could))
        };
        let missed = looked_at(block).iter().find(|pbn| is_missed(pbn));
        assert_eq!(missed, None, "3: a run from block {first} is missed of {}", told());
    }
}
