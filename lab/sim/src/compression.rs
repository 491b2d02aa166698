//! What compression saves beside deduplication: the distinct blocks of a corpus, compressed one by one as a volume does.

use hashbrown::HashSet;
use oncefs_compress::{BLOCK_BYTES, Compressor, Method};
use oncefs_toolbox::table::Table;

use crate::trace::{Content, Tree};

/// What one method makes of a corpus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed {
    method: Method,
    /// Bytes of all fragments, and of the blocks that stay as they are.
    bytes: u64,
    /// Blocks that stay as they are.
    as_they_are: u64,
}

/// A corpus, counted once as it is, once without repetitions, and once for each method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressedCorpus {
    name: String,
    /// Blocks of all files, without those of zeros.
    blocks: u64,
    /// Contents that differ.
    distinct: u64,
    packed: Vec<Packed>,
}

impl CompressedCorpus {
    /// Reads a tree to its end.
    pub fn of(name: String, tree: &mut Tree, methods: &[Method]) -> Self {
        let mut compressors: Vec<Compressor> = methods.iter().map(|method| Compressor::new(*method)).collect();
        let packed = methods.iter().map(|method| Packed { method: *method, bytes: 0, as_they_are: 0 }).collect();
        let mut corpus = Self { name, blocks: 0, distinct: 0, packed };
        let mut seen: HashSet<Content> = HashSet::new();
        while let Some((contents, bytes)) = tree.next_written() {
            for (content, block) in contents.iter().zip(bytes.chunks_exact(BLOCK_BYTES)) {
                if *content == Content::ZERO {
                    continue;
                }
                corpus.blocks += 1;
                if seen.insert(*content) {
                    corpus.distinct += 1;
                    corpus.pack(block, &mut compressors);
                }
            }
        }
        assert_eq!(corpus.distinct, seen.len() as u64, "distinct contents, and those seen");
        corpus
    }

    fn pack(&mut self, block: &[u8], compressors: &mut [Compressor]) {
        for (packed, compressor) in self.packed.iter_mut().zip(compressors) {
            match compressor.compress(block) {
                Some(fragment) => packed.bytes += fragment.len() as u64,
                None => {
                    packed.bytes += BLOCK_BYTES as u64;
                    packed.as_they_are += 1;
                }
            }
        }
    }
}

/// One row for each corpus and method.
pub fn compression_table(corpora: &[CompressedCorpus]) -> Table {
    let mut table = Table::new(&[
        "corpus",
        "method",
        "MiB",
        "distinct, %",
        "packed, MiB",
        "ratio of distinct blocks",
        "as they are, %",
        "of the corpus, %",
    ]);
    for corpus in corpora {
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
        let percent = |part: u64, whole: u64| format!("{:.1}", 100.0 * part as f64 / whole.max(1) as f64);
        let all = corpus.blocks * BLOCK_BYTES as u64;
        for packed in &corpus.packed {
            let ratio = (corpus.distinct * BLOCK_BYTES as u64) as f64 / packed.bytes.max(1) as f64;
            table.row(vec![
                corpus.name.clone(),
                packed.method.to_string(),
                mib(all),
                percent(corpus.distinct, corpus.blocks),
                mib(packed.bytes),
                format!("{ratio:.2}"),
                percent(packed.as_they_are, corpus.distinct),
                percent(packed.bytes, all),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use std::fs;

    use oncefs_toolbox::Random;

    use super::*;

    #[test]
    fn a_content_counts_once_zeros_never_and_what_does_not_shrink_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random::new(1);
        let noise: Vec<u8> = (0..BLOCK_BYTES).map(|_| random.below(256) as u8).collect();
        let text = vec![b'x'; BLOCK_BYTES];
        let zeros = vec![0; BLOCK_BYTES];
        fs::write(dir.path().join("one"), [&noise[..], &text, &zeros, &noise].concat()).unwrap();
        fs::write(dir.path().join("two"), [&text[..], &noise[..10]].concat()).unwrap();
        let mut tree = Tree::below(&[dir.path().to_owned()]).unwrap();
        let corpus = CompressedCorpus::of("both".to_owned(), &mut tree, &[Method::Lz4, Method::Zstd(1)]);
        assert_eq!((corpus.blocks, corpus.distinct), (5, 3), "noise, text, and an end of zeros");
        for packed in &corpus.packed {
            assert_eq!(packed.as_they_are, 1, "{packed:?}");
            let of_fragments = packed.bytes - BLOCK_BYTES as u64;
            assert!((2..200).contains(&of_fragments), "{packed:?}");
        }
        let table = compression_table(&[corpus]).to_string();
        assert!(table.contains("zstd:1") && table.contains("60.0"), "{table}");
    }
}
