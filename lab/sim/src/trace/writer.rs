//! Writes a trace as text, in the forms that the reader takes.

use std::io;

use super::columns::{Format, NO_CONTENTS};
use super::request::{Content, Event, Place};

const DEVICE_BITS: u32 = 32;

/// Appends one request: one line, or in the four-column form one line per block.
pub fn write_lines(event: &Event, format: Format, output: &mut impl io::Write) -> io::Result<()> {
    let time = event.time().as_nanos();
    let (place, blocks, contents, direction) = match event {
        Event::Write(write) => (write.place, write.contents.len(), Some(write.contents), "W"),
        Event::Read(read) => (read.place, read.blocks as usize, None, "R"),
    };
    match format {
        Format::Fiu => {
            let (lba, sectors) = (place.lbn * 8, blocks * 8);
            let (major, minor) = (place.file >> DEVICE_BITS, place.file & u64::from(u32::MAX));
            write!(output, "{time} 0 oncefs-sim {lba} {sectors} {direction} {major} {minor} ")?;
            match contents {
                Some(contents) => contents.iter().try_for_each(|content| write!(output, "{:032x}", content.0))?,
                None => write!(output, "{NO_CONTENTS}")?,
            }
            writeln!(output)
        }
        Format::Four => (0..blocks).try_for_each(|at| {
            let Place { file, lbn } = place.plus(at);
            let digest =
                contents.map_or(NO_CONTENTS.to_owned(), |contents: &[Content]| format!("{:032x}", contents[at].0));
            writeln!(output, "{time} {file} {lbn} {digest}")
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::trace::{Read, Reader, Source, Write};

    #[test]
    fn what_is_written_is_read_back() {
        let contents = [Content::numbered(1), Content::numbered(2), Content::ZERO];
        let (time, place) = (Duration::from_micros(12), Place { file: 3 << DEVICE_BITS | 9, lbn: 70 });
        let write = Write { time, place, contents: &contents };
        let read = Read { time, place, blocks: 3 };
        for format in [Format::Fiu, Format::Four] {
            let mut text = Vec::new();
            write_lines(&Event::Write(write), format, &mut text).unwrap();
            write_lines(&Event::Read(read), format, &mut text).unwrap();
            let mut reader = Reader::new(text.as_slice(), format);
            let (mut blocks, mut read_blocks) = (Vec::new(), Vec::new());
            while let Some(event) = reader.next().unwrap() {
                assert_eq!(event.time(), time);
                match event {
                    Event::Write(write) => blocks.extend(write.blocks()),
                    Event::Read(read) => read_blocks.extend((0..read.blocks).map(|at| read.place.plus(at as usize))),
                }
            }
            assert_eq!(blocks, write.blocks().collect::<Vec<_>>(), "{format:?}");
            assert_eq!(read_blocks, [0, 1, 2].map(|at| place.plus(at)), "{format:?}");
        }
    }
}
