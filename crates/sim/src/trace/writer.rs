//! Writes a trace as text, in the forms that the reader takes.

use std::io;

use super::{Format, Write};

const DEVICE_BITS: u32 = 32;

/// Appends one write: one line, or in the four-column form one line per block.
pub fn write_line(write: &Write, format: Format, output: &mut impl io::Write) -> io::Result<()> {
    let time = write.time.as_nanos();
    match format {
        Format::Fiu => {
            let (lba, sectors) = (write.place.lbn * 8, write.contents.len() * 8);
            let (major, minor) = (write.place.file >> DEVICE_BITS, write.place.file & u64::from(u32::MAX));
            write!(output, "{time} 0 oncefs-sim {lba} {sectors} W {major} {minor} ")?;
            write.contents.iter().try_for_each(|content| write!(output, "{:032x}", content.0))?;
            writeln!(output)
        }
        Format::Four => write.blocks().try_for_each(|(place, content)| {
            writeln!(output, "{time} {} {} {:032x}", place.file, place.lbn, content.0)
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::trace::{Content, Place, Reader, Source};

    #[test]
    fn what_is_written_is_read_back() {
        let contents = [Content::numbered(1), Content::numbered(2), Content::ZERO];
        let place = Place { file: 3 << DEVICE_BITS | 9, lbn: 70 };
        let write = Write { time: Duration::from_micros(12), place, contents: &contents };
        for format in [Format::Fiu, Format::Four] {
            let mut text = Vec::new();
            write_line(&write, format, &mut text).unwrap();
            let mut reader = Reader::new(text.as_slice(), format);
            let mut blocks = Vec::new();
            while let Some(read) = reader.next().unwrap() {
                assert_eq!(read.time, write.time);
                blocks.extend(read.blocks());
            }
            assert_eq!(blocks, write.blocks().collect::<Vec<_>>(), "{format:?}");
        }
    }
}
