//! Small traces for tests.

use std::time::Duration;

use crate::designs::{Design, Outcome};
use crate::trace::{Content, Place, Write};

/// Writes the numbered contents, one block a request, to lbn 0, 1, 2 ... of one file.
pub fn replayed(design: &mut dyn Design, numbers: &[u64]) -> Outcome {
    for (lbn, number) in (0..).zip(numbers) {
        write(design, lbn, &[*number]);
    }
    design.outcome()
}

/// Writes the numbered contents as one request from this lbn on.
pub fn write(design: &mut dyn Design, lbn: u64, numbers: &[u64]) {
    let contents: Vec<Content> = numbers.iter().map(|number| Content::numbered(*number)).collect();
    design.write(&Write { time: Duration::ZERO, place: Place { file: 1, lbn }, contents: &contents });
}
