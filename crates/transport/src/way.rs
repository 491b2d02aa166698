//! The two ways for requests: the wanted one and the one in use.

use std::fmt;
use std::str::FromStr;

use crate::rings::plan::Plan;

/// The wanted way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Rings where the kernel has them and memory allows, otherwise classic.
    #[default]
    Auto,
    /// Rings, or no mount.
    Rings,
    /// `/dev/fuse`.
    Classic,
}

impl Transport {
    /// The name in mount options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Rings => "rings",
            Self::Classic => "classic",
        }
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "rings" => Ok(Self::Rings),
            "classic" => Ok(Self::Classic),
            _ => Err(format!("{text:?} is not a transport: auto, rings, or classic")),
        }
    }
}

/// The way in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// FUSE over io_uring, with these threads.
    Rings(Plan),
    /// `/dev/fuse`, with the reason why not rings.
    Classic(String),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rings(plan) => {
                let (threads, kib) = (plan.threads.len(), plan.bytes() >> 10);
                write!(f, "over rings: {threads} threads, at most {kib} KiB of buffers")
            }
            Self::Classic(why) => write!(f, "over /dev/fuse, not over rings: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_named_and_nothing_else_is_taken() {
        for (name, transport) in
            [("auto", Transport::Auto), ("rings", Transport::Rings), ("classic", Transport::Classic)]
        {
            assert_eq!((name.parse(), transport.name()), (Ok(transport), name));
        }
        assert!("ring".parse::<Transport>().is_err() && "".parse::<Transport>().is_err());
    }
}
