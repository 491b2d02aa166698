//! The two ways for requests: which is wanted, which was taken, and the kernel's switch for the better one.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::knob::Knob;
use crate::rings::plan::Plan;

/// Which way is wanted.
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
    /// As it is written in options.
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

/// Which way was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// FUSE over io_uring, with these threads.
    Rings(Plan),
    /// `/dev/fuse`; why not rings.
    Classic(String),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rings(plan) => {
                let (threads, kib) = (plan.threads.len(), plan.bytes() >> 10);
                let low = if plan.has_low() { ", as many of the lowest class" } else { "" };
                write!(f, "over rings: {threads} threads{low}, {kib} KiB of buffers")
            }
            Self::Classic(why) => write!(f, "over /dev/fuse, not over rings: {why}"),
        }
    }
}

/// The kernel's switch for FUSE over io_uring, on until dropped: it counts while mounting and answering INIT.
#[derive(Debug)]
pub struct RingKnob {
    _turned: Option<Knob>,
}

impl RingKnob {
    pub(crate) const PATH: &str = "/sys/module/fuse/parameters/enable_uring";

    /// Turns it on unless classic is wanted. If it cannot be, the kernel does not offer rings, and the session says why.
    pub fn turn_on(transport: Transport) -> Self {
        if transport == Transport::Classic {
            return Self { _turned: None };
        }
        let on = |now: &str| (now != "Y").then(|| "Y".to_owned());
        let turned = Knob::turn(Path::new(Self::PATH), on);
        let turned = turned.unwrap_or_else(|e| {
            log::info!("cannot turn on {}: {e}", Self::PATH);
            None
        });
        Self { _turned: turned }
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
