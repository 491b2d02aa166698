//! How a cluster is reached and where a volume's objects lie: `rados://POOL/NAME`, a configuration file and a user.

use std::fmt;
use std::path::PathBuf;

use crate::{Error, Result};

/// The beginning of an address.
const SCHEME: &str = "rados://";
const CONF_DEFAULT: &str = "/etc/ceph/ceph.conf";
const ID_DEFAULT: &str = "admin";
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
}

impl Access {
    /// Whether a text is meant as an address.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Reads `rados://POOL/NAME`, with `?id=USER&conf=FILE` if these are not the defaults.
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
        let id = match parameters {
            "" => ID_DEFAULT,
            parameters => parameters.strip_prefix("id=").ok_or_else(wrong)?,
        };
        [pool, namespace, id].into_iter().try_for_each(check_name)?;
        let own = str::to_owned;
        Ok(Self { pool: own(pool), namespace: own(namespace), id: own(id), conf: conf.into() })
    }
}

impl fmt::Display for Access {
    /// The form that [`Access::parse`] reads. The path comes last, because it may have any characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, namespace, id, conf } = self;
        write!(f, "{SCHEME}{pool}/{namespace}?id={id}&conf={}", conf.display())
    }
}

fn check_name(name: &str) -> Result<()> {
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_sound) {
        true => Ok(()),
        false => Err(Error::Config(format!(
            "the name \"{}\" must have 1 to {NAME_BYTES_MAX} letters, digits or -_.",
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
        let long = Access { id: "oncefs".to_owned(), conf: "/srv/a?b&conf=c".into(), ..short };
        assert_eq!(Access::parse(&long.to_string()).unwrap(), long);
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_form() {
        for text in ["rados://", "rados://pool", "rados://pool/a/b", "rados:///x", "rados://p/x?key=1", "/dev/sda", ""]
        {
            assert!(matches!(Access::parse(text), Err(Error::Config(_))), "{text}");
        }
        assert!(Access::is_meant("rados://p/x") && !Access::is_meant("/dev/rados"));
    }
}
