//! Repair of names: what an audit finds and what has one right answer is mended.
//!
//! It goes in rounds of an audit and the mends of its lowest rank: records that cannot be read, then names, then what
//! has no name, then maps, then counts. Each mend is one publication that is right by itself, so a crash between two
//! of them leaves a volume that the next repair goes on with. Nothing with content is deleted: what has no name
//! gets one in `lost+found`.
//!
//! The blocks of the volume have been repaired before (`oncefs_engine::Store::repair`), because mends of maps rely on
//! their counts.

use oncefs_engine::{Remedy, Store};

use crate::fsck::audit::NameProgress;
use crate::fsck::audit::audit;
use crate::fsck::fault::Fault;
use crate::fsck::fixer;
use crate::names::seed::name_seed;
use crate::{Clock, Error, Result};

/// Faults kept of one audit; the next round finds what is left.
const FAULTS_MAX: usize = 1 << 16;
/// Rounds after which a repair gives up: six mend everything that one audit reports.
const ROUNDS_MAX: usize = 1_000;
/// Descriptions kept.
const DESCRIBED_MAX: usize = 100;

/// What an audit or a repair of names found.
#[derive(Debug, Default)]
pub struct NameFindings {
    /// What was mended, the first hundred.
    pub mended: Vec<String>,
    /// All that was mended.
    pub fixed_count: u64,
    /// What is left, the first hundred.
    pub left: Vec<String>,
    /// All that is left.
    pub left_count: u64,
}

/// Audits names, inodes and their maps.
pub fn check_names(store: &Store, progress: NameProgress<'_>) -> Result<NameFindings> {
    let mut findings = NameFindings::default();
    gather(store, &mut findings, progress)?;
    Ok(findings)
}

/// Audits names, inodes and their maps and mends what `limit` allows. The store was opened with
/// [`Store::open_for_fsck`]; its last commit is durable on return.
pub fn repair_names(
    store: &Store,
    clock: &dyn Clock,
    limit: Remedy,
    progress: NameProgress<'_>,
) -> Result<NameFindings> {
    let mut findings = NameFindings::default();
    let fixer = fixer::Fixer { store, name_seed: name_seed(store), now: clock.now() };
    for _ in 0..ROUNDS_MAX {
        let faults = gather(store, &mut findings, progress)?;
        let may = |fault: &&Fault| fault.remedy() <= limit && fault.remedy() != Remedy::None;
        let rank = faults.iter().filter(may).map(Fault::rank).min();
        let mended = findings.fixed_count;
        for fault in faults.iter().filter(may).filter(|fault| Some(fault.rank()) == rank) {
            let is_fixed = match fixer.mend(fault) {
                // What it needs is damaged itself, and named.
                Err(Error::Engine(oncefs_engine::Error::Corrupt { .. })) => false,
                other => other?,
            };
            if is_fixed {
                findings.fixed_count += 1;
                findings.mended.extend((findings.mended.len() < DESCRIBED_MAX).then(|| fault.to_string()));
            }
            store.settle()?;
        }
        store.commit()?;
        if findings.fixed_count == mended {
            break;
        }
    }
    Ok(findings)
}

/// One audit. What it finds is what is left.
fn gather(store: &Store, findings: &mut NameFindings, progress: NameProgress<'_>) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    (findings.left, findings.left_count) = (Vec::new(), 0);
    let mut found = |fault: Fault| {
        findings.left_count += 1;
        findings.left.extend((findings.left.len() < DESCRIBED_MAX).then(|| fault.to_string()));
        faults.extend((faults.len() < FAULTS_MAX).then_some(fault));
    };
    audit(store, &mut found, progress)?;
    Ok(faults)
}
