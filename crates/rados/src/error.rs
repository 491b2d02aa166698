//! What can go wrong between this process and a cluster. Each error says what the caller can do.

use std::io;

/// Why an operation on a cluster failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// librados is missing, or lacks a function.
    #[error("librados cannot be used ({0}): install it (Debian: apt install librados2)")]
    Library(String),
    /// The configuration or the keyring cannot be used.
    #[error("the configuration of the cluster cannot be used: {0}")]
    Config(String),
    /// The cluster did not answer.
    #[error("the cluster of {conf} does not answer: see ceph -c {conf} status, and that its monitors can be reached")]
    Unreachable {
        /// Its configuration file.
        conf: String,
    },
    /// The key lacks a right.
    #[error("the cluster refuses {what}: its key needs more rights (docs/beyond.md has the line for ceph auth)")]
    Denied {
        /// The operation.
        what: String,
    },
    /// There is no such pool.
    #[error(
        "the cluster has no pool {0}: ceph osd pool create {0}, or if it was renamed: ceph osd pool rename ITS_NAME {0}"
    )]
    NoPool(String),
    /// The pool was deleted while this process used it.
    #[error(
        "the pool {0} is gone: it was deleted from the cluster, with all objects of the volume in it; unmount the volume"
    )]
    Gone(String),
    /// The pool cannot keep these objects.
    #[error("{0}")]
    Unfit(String),
    /// There is no such object.
    #[error("there is no object {0}")]
    NotFound(String),
    /// The object exists already.
    #[error("the object {0} exists already")]
    Exists(String),
    /// The pool is full, or has reached its quota.
    #[error("the pool is full: add OSDs, raise its quota, or delete files")]
    Full,
    /// The object's attribute is not what the operation requires, so nothing changed.
    #[error("the object {0} has another epoch: another machine took over the volume")]
    Guarded(String),
    /// The cluster accepts nothing more from this client.
    #[error("the cluster has blocklisted this client: the volume was opened elsewhere since; unmount it here")]
    Fenced,
    /// Another client holds the objects.
    #[error(
        "client {client} at {address} ({holder}) holds the objects: unmount the volume there. If that machine is gone \
         for good: ceph osd blocklist add {address} 315360000, then rados -p {pool} -N {namespace} lock break lock \
         head {client}"
    )]
    Locked {
        /// The pool.
        pool: String,
        /// The namespace.
        namespace: String,
        /// The holder's name for itself.
        holder: String,
        /// The client, as the cluster names it.
        client: String,
        /// Its address.
        address: String,
    },
    /// The monitors answered a question in another form than the one that is understood.
    #[error("the answer of the cluster's monitors to {command} is not understood: {what}")]
    Answer {
        /// The question.
        command: String,
        /// What is wrong with the answer.
        what: String,
    },
    /// Anything else.
    #[error("{what}: {}", io::Error::from_raw_os_error(*.code))]
    Failed {
        /// The operation.
        what: String,
        /// The errno of librados.
        code: i32,
    },
}

/// Result of operations on a cluster.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An answer of librados: a number, or below 0 an errno.
    pub(crate) fn check(answer: i32, what: &str, object: &str) -> Result<usize> {
        usize::try_from(answer).map_err(|_| Self::of_answer(answer, what, object))
    }

    /// The meaning of an answer below 0, for an operation on an object.
    pub(crate) fn of_answer(answer: i32, what: &str, object: &str) -> Self {
        match -answer {
            libc::ENOENT => Self::NotFound(object.to_owned()),
            libc::EEXIST => Self::Exists(object.to_owned()),
            libc::ENOSPC | libc::EDQUOT => Self::Full,
            libc::ECANCELED => Self::Guarded(object.to_owned()),
            libc::ESHUTDOWN => Self::Fenced,
            libc::EPERM | libc::EACCES => Self::Denied { what: format!("{what} {object}") },
            code => Self::Failed { what: format!("{what} {object}"), code },
        }
    }
}

impl From<Error> for io::Error {
    /// A full pool is a full disk. Other errors keep their text.
    fn from(error: Error) -> Self {
        match error {
            Error::Full => Self::from_raw_os_error(libc::ENOSPC),
            other => Self::other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_meaning_that_its_caller_acts_on() {
        let of = |errno: i32| Error::of_answer(-errno, "writing", "data.7");
        assert_eq!(of(libc::ENOSPC), Error::Full);
        assert_eq!(of(libc::EDQUOT), Error::Full);
        assert_eq!(of(libc::ECANCELED), Error::Guarded("data.7".to_owned()));
        assert_eq!(of(libc::ESHUTDOWN), Error::Fenced);
        assert!(of(libc::EPERM).to_string().contains("refuses writing data.7"));
        assert!(of(libc::EIO).to_string().starts_with("writing data.7: "));
    }

    /// Without a time, Ceph forgets the client after an hour.
    #[test]
    fn a_locked_namespace_says_how_its_holder_is_fenced_for_ten_years() {
        let own = str::to_owned;
        let (pool, namespace, holder, client) = (own("data"), own("home"), own("head:/srv/home"), own("client.7"));
        let text = Error::Locked { pool, namespace, holder, client, address: own("10.0.0.9:0/7") }.to_string();
        assert!(text.contains("ceph osd blocklist add 10.0.0.9:0/7 315360000, then rados -p data -N home"), "{text}");
    }

    #[test]
    fn a_full_pool_is_a_full_disk_for_the_engine() {
        assert_eq!(io::Error::from(Error::Full).raw_os_error(), Some(libc::ENOSPC));
        assert!(io::Error::from(Error::Fenced).to_string().contains("blocklisted"));
    }
}
