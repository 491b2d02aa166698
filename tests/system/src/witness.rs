//! Witnesses: programs that remember, in their own memory and so outside the volume, what was acknowledged to them
//! as durable. After a crash each compares what it finds with that, byte by byte.
//!
//! What a witness accepts is what oncefs promises: a barrier makes everything durable that was done before it, and
//! what was under way is there as a whole prefix, in the order in which it was done, or not at all.

mod in_place;
mod names;
mod replaced;

use std::io;

use crate::Random;

pub use in_place::InPlace;
pub use names::Names;
pub use replaced::Replaced;

/// Something acknowledged that is not there, in words.
#[derive(Debug)]
pub struct Lost(pub String);

/// A program that knows what was acknowledged to it.
pub trait Witness: Send {
    /// A few changes, and a barrier that acknowledges them. An error is the end of the daemon.
    fn step(&mut self, random: &mut Random) -> io::Result<()>;

    /// Compares what is there with what was acknowledged. Returns how many bytes it compared; what it found is what
    /// must be there from now on.
    fn verify(&mut self) -> Result<u64, Lost>;

    /// Barriers that were acknowledged so far.
    fn barriers(&self) -> u64;

    /// Works until an error ends it.
    fn work(&mut self, random: &mut Random) -> io::Error {
        loop {
            if let Err(error) = self.step(random) {
                return error;
            }
        }
    }
}
