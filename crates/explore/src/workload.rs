//! Workloads: the operations before a crash. Each has a name that reproduces it.

use std::sync::Arc;

use crate::directed;
use crate::image::Images;
use crate::live::{Live, Recording, Setup};
use crate::model::Model;
use crate::operation::Operation;
use crate::random_work;
use crate::states::Effort;
use crate::vocabulary;

/// A volume to begin with.
pub struct Base {
    /// The way it was made and is opened.
    pub setup: &'static Setup,
    images: Images,
    model: Model,
}

impl Base {
    /// Makes the initial volume for workloads of this setup.
    pub fn make(setup: &'static Setup) -> Result<Arc<Self>, String> {
        let (images, model) = setup.make().map_err(|error| error.to_string())?;
        let mut live = Live::open(setup, images, model, false)?;
        vocabulary::base().into_iter().try_for_each(|operation| live.run(operation))?;
        let (images, model) = live.into_base();
        Ok(Arc::new(Self { setup, images, model }))
    }

    /// The contents of the volume's parts.
    pub fn images(&self) -> &Images {
        &self.images
    }
}

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name after that of the setup, as `create-file,commit`, `directed:checkpoint` or `random:7`.
    pub name: String,
    /// The operations.
    pub operations: Vec<Operation>,
    /// The number of its states to explore.
    pub effort: Effort,
    /// Whether commits happen within the operations.
    pub is_interrupted: bool,
}

impl Workload {
    fn new(name: String, operations: Vec<Operation>, effort: Effort) -> Self {
        Self { name, operations, effort, is_interrupted: false }
    }

    /// The workload of this name.
    pub fn named(name: &str) -> Result<Self, String> {
        if let Some(inner) = name.strip_prefix("interrupted:") {
            return Ok(Self { name: name.to_owned(), is_interrupted: true, ..Self::named(inner)? });
        }
        if let Some(seed) = name.strip_prefix("random:") {
            let seed = seed.parse().map_err(|_| format!("'{seed}' is not a seed: write a number"))?;
            return Ok(Self::random(seed));
        }
        if let Some(directed) = name.strip_prefix("directed:") {
            let found = directed::all().into_iter().find(|(name, _)| *name == directed);
            let (_, operations) = found.ok_or_else(|| format!("there is no directed workload '{directed}'"))?;
            return Ok(Self::new(name.to_owned(), operations, Effort::WHOLE));
        }
        let operations: Result<Vec<Vec<Operation>>, String> = name.split(',').map(vocabulary::named).collect();
        Ok(Self::new(name.to_owned(), operations?.concat(), Effort::WHOLE))
    }

    /// A seeded workload of 20 to 200 operations.
    pub fn random(seed: u64) -> Self {
        Self::new(format!("random:{seed}"), random_work::operations(seed), Effort::SAMPLE)
    }

    /// Whether a directed workload runs on volumes of this setup.
    pub fn runs_on(&self, setup: &Setup) -> bool {
        let name = self.name.rsplit(':').next().unwrap_or_default();
        setup.directed.is_empty() || setup.directed.contains(&name)
    }

    /// Runs it on a volume. An error says where the real file system and the model disagree without a crash.
    pub fn run(&self, base: &Base) -> Result<Recording, String> {
        let mut live = Live::open(base.setup, base.images.clone(), base.model.clone(), true)?;
        if self.is_interrupted {
            live.interrupt();
        }
        self.operations.iter().try_for_each(|operation| live.run(*operation))?;
        Ok(live.end())
    }
}

/// All directed workloads.
pub fn directed() -> Vec<Workload> {
    let all = directed::all().into_iter();
    all.map(|(name, operations)| Workload::new(format!("directed:{name}"), operations, Effort::WHOLE)).collect()
}

/// The same workloads with commits within the operations.
pub fn interrupted(workloads: &[Workload]) -> Vec<Workload> {
    let interrupted = |workload: &Workload| {
        let name = format!("interrupted:{}", workload.name);
        Workload { name, is_interrupted: true, ..workload.clone() }
    };
    workloads.iter().map(interrupted).collect()
}

/// The words for sequences.
pub fn words() -> Vec<&'static str> {
    vocabulary::words()
}

/// All sequences of `length` words of the vocabulary, with `between` between them, each with every ending.
pub fn sequences(length: usize, between: &str, endings: &[&str]) -> Vec<Workload> {
    let words = vocabulary::words();
    let mut all: Vec<String> = vec![String::new()];
    for at in 0..length {
        let between = if at == 0 { "" } else { between };
        all = all.iter().flat_map(|done| words.iter().map(move |word| format!("{done}{between}{word},"))).collect();
    }
    let named = all.iter().flat_map(|done| endings.iter().map(move |ending| format!("{done}{ending}")));
    named.map(|name| Workload::named(&name).expect("made of words of the vocabulary")).collect()
}
