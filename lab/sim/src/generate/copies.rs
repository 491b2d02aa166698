//! DEDISbench's tables: how many contents have how many copies.

use oncefs_toolbox::Random;

/// Contents with the same number of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyClass {
    /// Times each of them is written, at least 1.
    pub copies: u64,
    /// How many there are.
    pub contents: u64,
}

/// A distribution of copies, as DEDISgen measures it on real data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyTable(pub Vec<CopyClass>);

impl CopyTable {
    /// Reads DEDISbench's form: on each line a number of copies beyond the first, and a number of contents.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut classes = Vec::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let mut numbers = line.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
            match (numbers.next().flatten(), numbers.next().flatten(), numbers.next()) {
                (Some(more), Some(contents), None) if more < u64::MAX => {
                    classes.push(CopyClass { copies: more + 1, contents });
                }
                _ => return Err(format!("line {}: expected 'EXTRA_COPIES CONTENTS', found '{line}'", at + 1)),
            }
        }
        if classes.is_empty() { Err("the table is empty".to_owned()) } else { Ok(Self(classes)) }
    }

    /// Blocks in all.
    pub fn blocks(&self) -> u128 {
        self.0.iter().map(|class| u128::from(class.copies) * u128::from(class.contents)).sum()
    }

    /// Share of blocks that repeat another, 0 to 1.
    pub fn duplicate_share(&self) -> f64 {
        let contents: u128 = self.0.iter().map(|class| u128::from(class.contents)).sum();
        if self.blocks() == 0 { 0.0 } else { 1.0 - contents as f64 / self.blocks() as f64 }
    }

    /// A table of about `blocks` blocks: of each class as many contents as its share, fractions by chance, every
    /// content keeping its copies. Sampling blocks instead, as DEDISbench does, would lose most duplicates of a
    /// short run. A class whose single content is larger than the whole is left out.
    pub fn sampled(&self, blocks: u64, random: &mut Random) -> Self {
        let fraction = (blocks as f64 / self.blocks() as f64).min(1.0);
        let small = self.0.iter().filter(|class| class.copies <= blocks);
        let sampled = small.map(|class| {
            let expected = class.contents as f64 * fraction;
            let contents = expected as u64 + u64::from(random.chance(expected.fract()));
            CopyClass { contents, ..*class }
        });
        Self(sampled.filter(|class| class.contents > 0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read() {
        let table = CopyTable::parse("0 10\n4 2\n").unwrap();
        let classes = [CopyClass { copies: 1, contents: 10 }, CopyClass { copies: 5, contents: 2 }];
        assert_eq!(table.0, classes);
        assert_eq!(table.blocks(), 20);
        assert!((table.duplicate_share() - 0.4).abs() < 1e-12);
    }

    #[test]
    fn damaged_tables_are_refused_with_the_line() {
        for (text, expected) in [("", "empty"), ("0 1\n1\n", "line 2"), ("0 1 2", "line 1"), ("a 1", "line 1")] {
            assert!(CopyTable::parse(text).unwrap_err().contains(expected), "{text}");
        }
    }

    #[test]
    fn a_sample_keeps_the_share_of_duplicates() {
        let table = CopyTable::parse("0 500000\n1 100000\n9 30000\n99 100").unwrap();
        let sample = table.sampled(50_000, &mut Random::mixed(1));
        assert!((sample.blocks() as f64 / 50_000.0 - 1.0).abs() < 0.03, "{} blocks", sample.blocks());
        assert!((sample.duplicate_share() - table.duplicate_share()).abs() < 0.02);
    }
}
