//! Fixes for names: repairs those faults of an audit that have one right answer.
//!
//! Works in rounds of an audit and the fixes of the lowest rank found: records that cannot be read, then names, then
//! inodes without a name, then maps, then counts. Each fix is one publication that is correct by itself, so after a crash
//! between two of them the next run continues. No fix deletes content: files without a name get one in `lost+found`.
//!
//! Fixes of maps rely on the refcounts of blocks. So the blocks must be fixed first (`oncefs_engine::Store::repair`).

use oncefs_engine::{Remedy, Store};

use crate::fsck::audit::NameProgress;
use crate::fsck::audit::audit;
use crate::fsck::fault::Fault;
use crate::fsck::fixer;
use crate::names::placement::Placement;
use crate::{Clock, Error, Result};

/// Faults kept of one audit. The next round finds the others.
const FAULTS_MAX: usize = 1 << 16;
/// Rounds after which fixing stops. Six fix everything that one audit reports.
const ROUNDS_MAX: usize = 1_000;
/// Descriptions kept, of fixes and of faults.
const DESCRIBED_MAX: usize = 100;

/// The findings of an audit of names, or of a run that fixes them.
#[derive(Debug, Default)]
pub struct NameFindings {
    /// Descriptions of the faults fixed, at most one hundred.
    pub fixed: Vec<String>,
    /// Number of faults fixed.
    pub fixed_count: u64,
    /// Descriptions of the faults left, at most one hundred.
    pub left: Vec<String>,
    /// Number of faults left.
    pub left_count: u64,
}

/// Audits names, inodes and their maps. Changes nothing.
///
/// # Errors
///
/// `Engine`: the store cannot be read, or there is no room for temporary files.
pub fn check_names(store: &Store, progress: NameProgress<'_>) -> Result<NameFindings> {
    let mut findings = NameFindings::default();
    collect(store, &mut findings, progress)?;
    Ok(findings)
}

/// Audits names, inodes and their maps, and fixes the faults that `limit` allows. The store must be opened with
/// [`Store::open_for_fsck`]. The fixes are durable on return.
///
/// # Errors
///
/// - `NoSpace`: the host's file system is full.
/// - `ReadOnly`, `Engine`: the store failed.
pub fn fix_names(store: &Store, clock: &dyn Clock, limit: Remedy, progress: NameProgress<'_>) -> Result<NameFindings> {
    let mut findings = NameFindings::default();
    let fixer = fixer::Fixer { store, placement: Placement::read_or_tell(store)?.0, now: clock.now() };
    for _ in 0..ROUNDS_MAX {
        let faults = collect(store, &mut findings, progress)?;
        let may = |fault: &&Fault| fault.remedy() <= limit && fault.remedy() != Remedy::None;
        let rank = faults.iter().filter(may).map(Fault::rank).min();
        let fixed_before = findings.fixed_count;
        for fault in faults.iter().filter(may).filter(|fault| Some(fault.rank()) == rank) {
            let is_fixed = match fixer.fix(fault) {
                // A record that the fix needs is damaged too, and is a fault of its own.
                Err(Error::Engine(oncefs_engine::Error::Corrupt { .. })) => false,
                other => other?,
            };
            if is_fixed {
                findings.fixed_count += 1;
                findings.fixed.extend((findings.fixed.len() < DESCRIBED_MAX).then(|| fault.to_string()));
            }
            store.settle()?;
        }
        store.commit()?;
        let (fixed, described) = (findings.fixed_count, findings.fixed.len());
        assert!(fixed >= fixed_before && described as u64 <= fixed, "{described} of {fixed} fixes are described");
        if fixed == fixed_before {
            break;
        }
    }
    Ok(findings)
}

/// Runs one audit, and records its faults in the findings as left.
fn collect(store: &Store, findings: &mut NameFindings, progress: NameProgress<'_>) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    (findings.left, findings.left_count) = (Vec::new(), 0);
    let mut found = |fault: Fault| {
        findings.left_count += 1;
        findings.left.extend((findings.left.len() < DESCRIBED_MAX).then(|| fault.to_string()));
        faults.extend((faults.len() < FAULTS_MAX).then_some(fault));
    };
    audit(store, &mut found, progress)?;
    let (left, described) = (findings.left_count, findings.left.len());
    assert!(described as u64 <= left && faults.len() as u64 <= left, "{described} of {left} faults are described");
    Ok(faults)
}
