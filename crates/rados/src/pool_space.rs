//! The space of a pool, as the cluster's monitors tell it: what it can still take, what it stores, and its quotas.
//!
//! The figures come from the cluster's manager, which counts them every few seconds. A cluster that never had one has
//! none; if it dies, the monitors go on telling its last ones.

use serde_json::Value;

use crate::{Error, Result};

/// The question. A key with `mon 'profile rbd'` may ask it.
pub const COMMAND: &str = r#"{"prefix":"df","detail":"detail","format":"json"}"#;

/// The question for what a pool's quotas are compared with, which is not what it stores: holes in objects count too.
pub fn quota_command(pool: &str) -> String {
    format!(r#"{{"prefix":"osd pool get-quota","pool":"{pool}","format":"json"}}"#)
}

/// The space of a pool. All bytes are before copies, unless they are said to be with copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSpace {
    /// Bytes that the pool can still take until its fullest OSD reaches the full ratio.
    pub osds_left_bytes: u64,
    /// Bytes that it stores.
    pub stored_bytes: u64,
    /// Bytes that it takes of the OSDs, with copies.
    pub used_bytes: u64,
    /// Its objects.
    pub objects: u64,
    /// Its quotas, if it has any.
    pub quotas: Option<Quotas>,
}

/// The quotas of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Bytes that are left of the quota of bytes.
    pub bytes_left: Option<u64>,
    /// Objects that are left of the quota of objects.
    pub objects_left: Option<u64>,
}

impl PoolSpace {
    /// Bytes that the pool can still take, by its OSDs and its quotas, if an object takes at most `object_bytes`.
    pub fn left_bytes(&self, object_bytes: u64) -> u64 {
        let quotas = self.quotas.unwrap_or_default();
        let by_objects = quotas.objects_left.map(|objects| objects.saturating_mul(object_bytes));
        [quotas.bytes_left, by_objects].into_iter().flatten().fold(self.osds_left_bytes, u64::min)
    }

    /// Reads the answer to [`COMMAND`]. None: the cluster does not know the pool's space (yet). Also returns whether the
    /// pool has quotas, which another question tells.
    ///
    /// # Errors
    ///
    /// [`Error::Answer`]: it is no answer to that question.
    pub(crate) fn of_answer(answer: &[u8], pool: &str) -> Result<Option<(Self, bool)>> {
        let wrong = |what: &str| wrong_answer("df detail", what);
        let document = json(answer, "df detail")?;
        let pools = document["pools"].as_array().ok_or_else(|| wrong("it has no pools"))?;
        // A cluster that never had a manager knows of no device.
        if document["stats"]["total_bytes"].as_u64().unwrap_or(0) == 0 {
            return Ok(None);
        }
        let Some(stats) = pools.iter().find(|other| other["name"] == *pool).map(|pool| &pool["stats"]) else {
            return Ok(None);
        };
        let number = |name: &str| stats[name].as_u64().ok_or_else(|| wrong(&format!("{name} is missing")));
        let has_quotas = ["quota_bytes", "quota_objects"].iter().any(|name| stats[name].as_u64() != Some(0));
        let space = Self {
            osds_left_bytes: number("max_avail")?,
            stored_bytes: number("stored")?,
            used_bytes: number("bytes_used")?,
            objects: number("objects")?,
            quotas: None,
        };
        Ok(Some((space, has_quotas)))
    }
}

impl Quotas {
    /// Reads the answer to [`quota_command`].
    ///
    /// # Errors
    ///
    /// [`Error::Answer`]: it is no answer to that question.
    pub(crate) fn of_answer(answer: &[u8]) -> Result<Self> {
        const COMMAND: &str = "osd pool get-quota";
        let document = json(answer, COMMAND)?;
        let number =
            |name: &str| document[name].as_u64().ok_or_else(|| wrong_answer(COMMAND, &format!("{name} is missing")));
        // Zero is no quota.
        let left = |most: &str, now: &str| -> Result<Option<u64>> {
            let (most, now) = (number(most)?, number(now)?);
            Ok((most > 0).then(|| most.saturating_sub(now)))
        };
        Ok(Self {
            bytes_left: left("quota_max_bytes", "current_num_bytes")?,
            objects_left: left("quota_max_objects", "current_num_objects")?,
        })
    }
}

pub(crate) fn json(answer: &[u8], command: &str) -> Result<Value> {
    serde_json::from_slice(answer).map_err(|_| wrong_answer(command, "it is no JSON"))
}

pub(crate) fn wrong_answer(command: &str, what: &str) -> Error {
    Error::Answer { command: command.to_owned(), what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As version 16 answers, less what is not read.
    const ANSWER: &str = r#"{"stats":{"total_bytes":12884901888,"total_avail_bytes":12800000000},
        "stats_by_class":{"ssd":{"total_bytes":12884901888}},
        "pools":[{"name":"other","id":1,"stats":{}},
        {"name":"data","id":2,"stats":{"stored":1000,"stored_data":900,"stored_omap":100,"objects":7,"kb_used":3,
        "bytes_used":3000,"percent_used":0.1,"max_avail":4000000000,"quota_objects":0,"quota_bytes":5000}}]}"#;

    #[test]
    fn an_answer_tells_the_space_of_the_pool_that_is_asked_for() {
        let expected = PoolSpace {
            osds_left_bytes: 4_000_000_000,
            stored_bytes: 1000,
            used_bytes: 3000,
            objects: 7,
            quotas: None,
        };
        assert_eq!(PoolSpace::of_answer(ANSWER.as_bytes(), "data").unwrap(), Some((expected, true)));
        let without = ANSWER.replace("\"quota_bytes\":5000", "\"quota_bytes\":0");
        assert_eq!(PoolSpace::of_answer(without.as_bytes(), "data").unwrap(), Some((expected, false)));
        assert_eq!(PoolSpace::of_answer(ANSWER.as_bytes(), "none").unwrap(), None);
    }

    #[test]
    fn a_cluster_without_a_manager_knows_nothing_and_is_not_taken_for_a_full_one() {
        let nothing = ANSWER.replace("\"total_bytes\":12884901888", "\"total_bytes\":0");
        assert_eq!(PoolSpace::of_answer(nothing.as_bytes(), "data").unwrap(), None);
    }

    #[test]
    fn another_answer_is_an_error_that_names_what_is_missing() {
        let why = |answer: &str| PoolSpace::of_answer(answer.as_bytes(), "data").unwrap_err().to_string();
        assert!(why("").contains("df detail") && why("").contains("no JSON"));
        assert!(why("{}").contains("no pools"));
        assert!(why(&ANSWER.replace("max_avail", "avail")).contains("max_avail is missing"));
    }

    #[test]
    fn quotas_are_compared_with_what_the_cluster_compares_them_with() {
        let answer = r#"{"pool_name":"data","pool_id":1,"quota_max_objects":8,"current_num_objects":5,
            "quota_max_bytes":0,"current_num_bytes":6}"#;
        let found = Quotas::of_answer(answer.as_bytes()).unwrap();
        assert_eq!(found, Quotas { bytes_left: None, objects_left: Some(3) });
        let beyond = answer.replace("\"quota_max_bytes\":0", "\"quota_max_bytes\":4");
        assert_eq!(Quotas::of_answer(beyond.as_bytes()).unwrap().bytes_left, Some(0), "set below what is there");
        assert!(Quotas::of_answer(b"{}").unwrap_err().to_string().contains("quota_max_bytes is missing"));
    }

    #[test]
    fn the_least_of_osds_and_quotas_is_left() {
        let space = PoolSpace { osds_left_bytes: 1000, ..PoolSpace::default() };
        let left = |bytes_left, objects_left| {
            let quotas = Some(Quotas { bytes_left, objects_left });
            PoolSpace { quotas, ..space }.left_bytes(100)
        };
        assert_eq!((space.left_bytes(100), left(None, None)), (1000, 1000));
        assert_eq!((left(Some(400), None), left(Some(400), Some(3)), left(Some(0), Some(3))), (400, 300, 0));
        assert_eq!(left(None, Some(u64::MAX)), 1000);
    }
}
