//! How a cluster is reached and where a volume's objects lie: `rados://POOL/NAME`, a configuration file and a user.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::{Error, Result};

/// The beginning of an address.
const SCHEME: &str = "rados://";
const CONF_DEFAULT: &str = "/etc/ceph/ceph.conf";
const ID_DEFAULT: &str = "admin";
/// How many records an object may have. Ceph warns at 200,000 keys.
const RECORD_KEYS: RangeInclusive<u64> = 16..=200_000;
/// Longest name of a pool, namespace or user.
const NAME_BYTES_MAX: usize = 64;

/// A namespace of a pool, and the way to its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The pool.
    pub pool: String,
    /// The namespace, which belongs to one volume.
    pub namespace: String,
    /// The user, without `client.`.
    pub id: String,
    /// The cluster's configuration file.
    pub conf: PathBuf,
    /// Most records of an object, if a volume's records lie there too. None: they lie elsewhere.
    pub record_keys_max: Option<u64>,
    /// The pool of the data area's objects, in a namespace of the same name. None: they lie beside the others.
    pub data_pool: Option<String>,
}

impl Access {
    /// Whether a text is meant as an address.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Reads `rados://POOL/NAME`, with `?id=USER&records=NUMBER&data=POOL&conf=FILE` as far as these are not the
    /// defaults.
    ///
    /// # Errors
    ///
    /// [`Error::Config`]: the text has another form, or a name has other characters.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || Error::Config(format!("{text} is no address: give rados://POOL/NAME"));
        let (place, parameters) =
            text.strip_prefix(SCHEME).ok_or_else(wrong)?.split_once('?').unwrap_or_else(|| (&text[SCHEME.len()..], ""));
        let (pool, namespace) = place.split_once('/').ok_or_else(wrong)?;
        let (parameters, conf) = match parameters.split_once("conf=") {
            Some((before, conf)) => (before.trim_end_matches('&'), conf),
            None => (parameters, CONF_DEFAULT),
        };
        let (mut id, mut record_keys_max, mut data_pool) = (ID_DEFAULT, None, None);
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("id", user)) => id = user,
                Some(("records", keys)) => record_keys_max = Some(Self::record_keys(keys)?),
                Some(("data", pool)) => data_pool = Some(pool),
                _ => return Err(wrong()),
            }
        }
        [pool, namespace, id].into_iter().try_for_each(check_name)?;
        let own = str::to_owned;
        let (pool, namespace, id) = (own(pool), own(namespace), own(id));
        let access = Self { pool, namespace, id, conf: conf.into(), record_keys_max, data_pool: None };
        match data_pool {
            Some(pool) => access.with_data_pool(pool),
            None => Ok(access),
        }
    }

    /// The same with another pool for the data area.
    ///
    /// # Errors
    ///
    /// [`Error::Config`]: the name has other characters, or is that of the volume's pool.
    pub fn with_data_pool(self, pool: &str) -> Result<Self> {
        check_name(pool)?;
        if pool == self.pool {
            return Err(Error::Config(format!("all objects lie in the pool {pool}: leave out the pool of the data")));
        }
        Ok(Self { data_pool: Some(pool.to_owned()), ..self })
    }

    /// The way to the objects of the data area. None: they lie beside the others.
    pub fn of_data(&self) -> Option<Self> {
        let pool = self.data_pool.clone()?;
        Some(Self { pool, data_pool: None, record_keys_max: None, ..self.clone() })
    }

    /// Reads how many records an object may have.
    ///
    /// # Errors
    ///
    /// [`Error::Config`]: it is no number, too small or too large.
    pub fn record_keys(text: &str) -> Result<u64> {
        let keys = text.parse().ok().filter(|keys| RECORD_KEYS.contains(keys));
        let (least, most) = RECORD_KEYS.into_inner();
        keys.ok_or_else(|| {
            Error::Config(format!("{text} is no number of records of an object: give {least} to {most}"))
        })
    }
}

impl fmt::Display for Access {
    /// The form that [`Access::parse`] reads. The path comes last, because it may have any characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, namespace, id, conf, record_keys_max, data_pool } = self;
        let records = record_keys_max.map_or_else(String::new, |keys| format!("&records={keys}"));
        let data = data_pool.as_ref().map_or_else(String::new, |pool| format!("&data={pool}"));
        write!(f, "{SCHEME}{pool}/{namespace}?id={id}{records}{data}&conf={}", conf.display())
    }
}

fn check_name(name: &str) -> Result<()> {
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    // A name is a directory's too, and one of dots would lead out of its parent.
    let is_of_dots = name.bytes().all(|byte| byte == b'.');
    match (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_sound) && !is_of_dots {
        true => Ok(()),
        false => Err(Error::Config(format!(
            "the name \"{}\" must have 1 to {NAME_BYTES_MAX} letters, digits or -_. and not only dots",
            name.escape_default()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_as_it_was_given() {
        let short = Access::parse("rados://data/vol7").unwrap();
        assert_eq!((&short.pool[..], &short.namespace[..], &short.id[..]), ("data", "vol7", "admin"));
        assert_eq!(short.conf.to_str(), Some("/etc/ceph/ceph.conf"));
        assert_eq!(Access::parse(&short.to_string()).unwrap(), short);
        let long = Access { id: "oncefs".to_owned(), conf: "/srv/a?b&conf=c".into(), ..short };
        assert_eq!(Access::parse(&long.to_string()).unwrap(), long);
        let with_records = Access { record_keys_max: Some(100_000), ..long };
        assert_eq!(Access::parse(&with_records.to_string()).unwrap(), with_records);
        assert!(with_records.to_string().contains("?id=oncefs&records=100000&conf="), "{with_records}");
        let in_two = with_records.with_data_pool("ec").unwrap();
        assert_eq!(Access::parse(&in_two.to_string()).unwrap(), in_two);
        assert!(in_two.to_string().contains("&records=100000&data=ec&conf="), "{in_two}");
        let of_data = in_two.of_data().unwrap();
        assert_eq!((&of_data.pool[..], &of_data.namespace[..], of_data.of_data()), ("ec", "vol7", None));
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_form() {
        for text in [
            "rados://",
            "rados://pool",
            "rados://pool/a/b",
            "rados:///x",
            "rados://p/x?key=1",
            "/dev/sda",
            "",
            "rados://p/x?records=3",
            "rados://data/..",
            "rados://../x",
            "rados://data/.",
            "rados://p/x?data=p",
            "rados://p/x?data=a/b",
        ] {
            assert!(matches!(Access::parse(text), Err(Error::Config(_))), "{text}");
        }
        assert!(Access::is_meant("rados://p/x") && !Access::is_meant("/dev/rados"));
    }
}
