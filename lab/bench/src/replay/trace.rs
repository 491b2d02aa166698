//! What is replayed: a trace from a file, in the form that its first line has, or a made twin of a published one.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use oncefs_sim::{
    CORPORATE, Content, ENGINEERING, Event, Filer, Format, Mixed, PHONE, Place, Reader, Recording, Source, TWINS,
};

use crate::failure::{During, Failure, Result};

/// Columns of the two forms.
const FIU_COLUMNS: usize = 9;
const FOUR_COLUMNS: usize = 4;

/// A trace in memory, and what it leaves behind.
pub struct Trace {
    /// Its name in the tables.
    pub name: String,
    /// Its requests.
    pub recording: Recording,
    /// What each written place holds at the end.
    pub last: BTreeMap<Place, Content>,
    /// Different contents written, and blocks written.
    pub contents: usize,
    /// Requests.
    pub requests: usize,
}

impl Trace {
    /// The first `requests_max` requests of a file.
    pub fn from_file(path: &Path, requests_max: usize) -> Result<Trace> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let during = || format!("cannot read {}", path.display());
        let mut input = BufReader::new(File::open(path).during(during)?);
        let start = input.fill_buf().during(during)?;
        let line = start.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
        let format = format_of(line).ok_or_else(|| {
            Failure::new(format!("{} is no trace: its first line has neither 9 nor 4 columns", path.display()))
        })?;
        Trace::record(name, Reader::new(input, format), requests_max).during(during)
    }

    /// The twin of this name at one `scale`-th of its size.
    pub fn twin(name: &str, scale: u64, seed: u64, requests_max: usize) -> Result<Trace> {
        let filer = |twin: oncefs_sim::FilerTwin| Filer::new(twin.spec(scale, seed)).map(|made| Box::new(made) as _);
        let source: std::result::Result<Box<dyn Source>, String> = match name {
            "corporate" => filer(CORPORATE),
            "engineering" => filer(ENGINEERING),
            "phone" => filer(PHONE),
            number => match TWINS.iter().find(|twin| twin.trace.to_string() == number) {
                Some(twin) => Mixed::new(twin.spec(scale, seed)).map(|made| Box::new(made) as _),
                None => Err(format!("there is no twin {name}: choose 1 to {}, {FILERS}", TWINS.len())),
            },
        };
        let source = source.map_err(Failure::new)?;
        Trace::record(format!("twin {name}, 1/{scale}"), source, requests_max).during(|| "cannot make a twin")
    }

    fn record(
        name: String,
        mut source: impl Source,
        requests_max: usize,
    ) -> std::result::Result<Trace, oncefs_sim::TraceError> {
        let (mut recording, mut last, mut requests) = (Recording::default(), BTreeMap::new(), 0);
        let mut contents: HashSet<Content> = HashSet::new();
        while requests < requests_max {
            let Some(event) = source.next()? else { break };
            if let Event::Write(write) = event {
                contents.extend(write.contents);
                last.extend(write.blocks());
            }
            recording.push(&event);
            requests += 1;
        }
        Ok(Trace { name, recording, last, contents: contents.len(), requests })
    }

    /// Different contents that are there at the end, zeros left out: what has to be stored.
    pub fn live_contents(&self) -> usize {
        let live: HashSet<&Content> = self.last.values().filter(|content| **content != Content::ZERO).collect();
        live.len()
    }

    /// Blocks written whose content was written before, in percent.
    pub fn duplicates_percent(&self) -> f64 {
        100.0 * (1.0 - self.contents as f64 / self.recording.blocks().max(1) as f64)
    }
}

const FILERS: &str = "corporate, engineering or phone";

fn format_of(line: &[u8]) -> Option<Format> {
    match line.split(u8::is_ascii_whitespace).filter(|column| !column.is_empty()).count() {
        FIU_COLUMNS => Some(Format::Fiu),
        FOUR_COLUMNS => Some(Format::Four),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "00112233445566778899aabbccddeeff";
    const B: &str = "ffeeddccbbaa99887766554433221100";

    fn trace(text: &str, requests_max: usize) -> Result<Trace> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        std::fs::write(&path, text).unwrap();
        Trace::from_file(&path, requests_max)
    }

    #[test]
    fn both_forms_are_known_by_their_first_line() {
        let fiu = trace(&format!("\n1 2 p 8 16 W 0 0 {A}{B}\n2 2 p 16 8 R 0 0 -\n3 2 p 8 8 W 0 0 {B}\n"), 9).unwrap();
        assert_eq!((fiu.requests, fiu.recording.blocks(), fiu.contents, fiu.live_contents()), (3, 3, 2, 1));
        let four = trace(&format!("1 7 0 {A}\n2 7 1 {A}\n3 7 0 -\n"), 9).unwrap();
        assert_eq!((four.requests, four.last.len(), four.live_contents()), (3, 2, 1));
        assert_eq!(four.duplicates_percent(), 50.0);
    }

    #[test]
    fn a_trace_is_cut_after_so_many_requests_and_what_is_none_is_refused() {
        assert_eq!(trace(&format!("1 7 0 {A}\n2 7 1 {B}\n"), 1).unwrap().last.len(), 1);
        for (text, expected) in
            [("", "neither 9 nor 4"), ("a b c", "neither"), ("1 7 0 x", "line 1: 'x' is not an MD5")]
        {
            let failure = trace(text, 9).err().unwrap();
            assert!(failure.to_string().contains(expected), "{failure}");
        }
    }

    #[test]
    fn a_twin_has_the_published_share_of_duplicates() {
        let twin = Trace::twin("1", 16_384, 1, usize::MAX).unwrap();
        assert!((twin.duplicates_percent() - 21.9).abs() < 2.0, "{}", twin.duplicates_percent());
        assert!(Trace::twin("corporate", 16_384, 1, 50).unwrap().requests == 50);
        assert!(Trace::twin("7", 16_384, 1, 9).err().unwrap().to_string().contains("1 to 6"));
    }
}
