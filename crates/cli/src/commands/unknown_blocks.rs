//! Messages in the status of scrub and worker about blocks that both skip.

use oncefs_engine::UnknownBlocks;

use crate::names::printable;

/// A line for each range of blocks without a readable entry in the block table, and for each other reason to skip
/// something. Then the remedy. Empty if there are none.
pub fn lines(unknown: &UnknownBlocks, passed_over: &[String]) -> Vec<String> {
    let range = |(first, end): &(u64, u64)| {
        format!("skipped: blocks {first} to {} of the data area, whose entries in the block table are damaged", end - 1)
    };
    let mut lines: Vec<String> = unknown.ranges.iter().map(range).collect();
    if unknown.more > 0 {
        lines.push(format!("skipped: {} more ranges of blocks with damaged entries", unknown.more));
    }
    lines.extend(passed_over.iter().map(|why| format!("skipped: {}", printable(why))));
    if !lines.is_empty() {
        lines.push("unmount the volume and run oncefs fsck -y on it: that makes the entries anew".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_over_is_named_with_what_mends_it() {
        assert!(lines(&UnknownBlocks::default(), &[]).is_empty());
        let unknown = UnknownBlocks { blocks: 160, ranges: vec![(16, 32), (128, 256)], more: 1 };
        let text = lines(&unknown, &["a record is damaged: it names block 7".to_owned()]).join("\n");
        for part in ["blocks 16 to 31 of", "blocks 128 to 255 of", "1 more ranges", "names block 7", "oncefs fsck -y"] {
            assert!(text.contains(part), "no '{part}' in\n{text}");
        }
    }
}
