//! How a pool keeps its objects, as the cluster's monitors tell it: as copies, or erasure-coded.

use crate::pool_space::{json, wrong_answer};
use crate::{Error, Result};

/// The question. A key with `mon 'profile rbd'` may ask it.
pub const COMMAND: &str = r#"{"prefix":"osd pool ls","detail":"detail","format":"json"}"#;
/// Ceph's number of an erasure-coded pool. Copies are 1.
const ERASURE: u64 = 3;
/// The flag of an erasure-coded pool that takes writes of parts of objects.
const OVERWRITES: &str = "ec_overwrites";

/// How a pool keeps its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// As copies.
    Replicated,
    /// Erasure-coded. Such a pool has no keys (omap).
    ErasureCoded {
        /// Whether parts of objects can be written.
        takes_overwrites: bool,
    },
}

impl PoolKind {
    /// Reads the answer to [`COMMAND`].
    ///
    /// # Errors
    ///
    /// [`Error::NoPool`]; [`Error::Answer`]: it is no answer to that question.
    pub(crate) fn of_answer(answer: &[u8], pool: &str) -> Result<Self> {
        const COMMAND: &str = "osd pool ls detail";
        let document = json(answer, COMMAND)?;
        let pools = document.as_array().ok_or_else(|| wrong_answer(COMMAND, "it is no list"))?;
        let found = pools.iter().find(|other| other["pool_name"] == *pool);
        let found = found.ok_or_else(|| Error::NoPool(pool.to_owned()))?;
        let number = found["type"].as_u64().ok_or_else(|| wrong_answer(COMMAND, "type is missing"))?;
        if number != ERASURE {
            return Ok(Self::Replicated);
        }
        let flags = found["flags_names"].as_str().ok_or_else(|| wrong_answer(COMMAND, "flags_names is missing"))?;
        Ok(Self::ErasureCoded { takes_overwrites: flags.split(',').any(|flag| flag == OVERWRITES) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As version 16 answers, less what is not read.
    const ANSWER: &str = r#"[{"pool_id":1,"pool_name":"data","flags":1,"flags_names":"hashpspool","type":1,"size":3},
        {"pool_id":2,"pool_name":"ec","flags":131073,"flags_names":"hashpspool,ec_overwrites","type":3,"size":3}]"#;

    #[test]
    fn an_answer_tells_copies_from_erasure_codes_and_whether_parts_are_written() {
        let of = |answer: &str, pool: &str| PoolKind::of_answer(answer.as_bytes(), pool);
        assert_eq!(of(ANSWER, "data"), Ok(PoolKind::Replicated));
        assert_eq!(of(ANSWER, "ec"), Ok(PoolKind::ErasureCoded { takes_overwrites: true }));
        let without = ANSWER.replace(",ec_overwrites", "");
        assert_eq!(of(&without, "ec"), Ok(PoolKind::ErasureCoded { takes_overwrites: false }));
        assert_eq!(of(ANSWER, "none"), Err(Error::NoPool("none".to_owned())));
        for (other, why) in [("{}", "no list"), (r#"[{"pool_name":"ec"}]"#, "type is missing")] {
            assert!(of(other, "ec").unwrap_err().to_string().contains(why), "{other}");
        }
    }
}
