//! Reads a trace line by line, in memory for one line whatever the length of the trace.

use std::io::{BufRead, Read};

use super::columns::{Format, Parsed};
use super::request::{Content, Event, Read as ReadRequest, Source, TraceError, Write};
use super::{fiu, four};

/// Bytes that a line may have: 4096 MD5s and some more. A file without line ends is refused, not read into memory.
const LINE_BYTES_MAX: u64 = 2 << 20;

/// A trace as text. Empty lines are passed over.
pub struct Reader<R> {
    input: R,
    format: Format,
    line: Vec<u8>,
    lines: u64,
    contents: Vec<Content>,
}

impl<R: BufRead> Reader<R> {
    /// Reads `input` as this format.
    pub fn new(input: R, format: Format) -> Self {
        Self { input, format, line: Vec::new(), lines: 0, contents: Vec::new() }
    }

    /// Lines seen.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The next line that is not empty; false at the end.
    fn read_line(&mut self) -> Result<bool, TraceError> {
        loop {
            self.line.clear();
            let read = self.input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
            let read = read.map_err(|e| self.error(1, e.to_string()))?;
            if read == 0 {
                return Ok(false);
            }
            self.lines += 1;
            if read as u64 == LINE_BYTES_MAX {
                return Err(self.error(0, format!("longer than {LINE_BYTES_MAX} bytes: this is not a trace")));
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    /// An error in the current line, or `ahead` lines after it.
    fn error(&self, ahead: u64, message: String) -> TraceError {
        TraceError { line: self.lines + ahead, message }
    }
}

impl<R: BufRead> Source for Reader<R> {
    fn next(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        if !self.read_line()? {
            return Ok(None);
        }
        let text = std::str::from_utf8(&self.line).map_err(|_| self.error(0, "not UTF-8 text".to_owned()))?;
        let parse = match self.format {
            Format::Fiu => fiu::parse,
            Format::Four => four::parse,
        };
        let parsed = parse(text, &mut self.contents);
        let Parsed { time, place, read_blocks } = parsed.map_err(|message| self.error(0, message))?;
        Ok(Some(match read_blocks {
            Some(blocks) => Event::Read(ReadRequest { time, place, blocks }),
            None => Event::Write(Write { time, place, contents: &self.contents }),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "00112233445566778899aabbccddeeff";

    /// Lbns of the writes, or the error; a read counts as lbn 0.
    fn lbns(text: &[u8], format: Format) -> Result<Vec<u64>, TraceError> {
        let mut reader = Reader::new(text, format);
        let mut found = Vec::new();
        while let Some(event) = reader.next()? {
            found.push(if let Event::Write(write) = event { write.place.lbn } else { 0 });
        }
        Ok(found)
    }

    #[test]
    fn requests_come_in_order() {
        let text = format!("1 2 p 8 8 W 0 0 {MD5}\n2 2 p 16 8 R 0 0 {MD5}\n\n3 2 p 24 8 W 0 0 {MD5}");
        assert_eq!(lbns(text.as_bytes(), Format::Fiu), Ok(vec![1, 0, 3]));
    }

    #[test]
    fn an_error_names_its_line() {
        let text = format!("1 0 1 {MD5}\n\n1 0 2 nonsense\n");
        let error = lbns(text.as_bytes(), Format::Four).unwrap_err();
        assert_eq!(error.line, 3);
        assert!(error.to_string().starts_with("line 3: 'nonsense' is not an MD5"), "{error}");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        assert!(lbns(&[b'1', 0xff, b'\n'], Format::Four).unwrap_err().message.contains("not UTF-8"));
        let endless = vec![b'x'; LINE_BYTES_MAX as usize + 10];
        assert!(lbns(&endless, Format::Four).unwrap_err().message.contains("longer than"));
    }
}
