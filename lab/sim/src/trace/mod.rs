//! What a trace is: writes and reads in order; a write names a place and the contents that go there.
//!
//! Owns the nouns, and the forms a trace may have as text. Nothing here holds more than one line of it.

mod columns;
mod fiu;
mod four;
mod reader;
mod recording;
mod request;
mod tree;
mod writer;

pub use columns::Format;
pub use reader::Reader;
pub use recording::{Recording, Replay};
pub use request::{Content, Event, Place, Read, Source, TraceError, Write};
pub use tree::Tree;
pub use writer::write_lines;
