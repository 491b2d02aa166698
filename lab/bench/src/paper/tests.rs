//! What holds for the tables of every paper, without measuring anything.

use std::collections::BTreeSet;

use clap::Parser;

use super::*;

#[test]
fn the_words_of_every_experiment_are_a_command_line_of_this_program() {
    let path = Path::new("/");
    let scaled = |scale| Conditions { directory: path, oncefs: path, scale, repetitions: 1, seed: 1 };
    let experiments = papers().into_iter().flat_map(|paper| paper.experiments());
    let at_each_scale = experiments.flat_map(|experiment| [0.001, 0.01, 1.0].map(|scale| (experiment, scaled(scale))));
    for (experiment, conditions) in at_each_scale {
        let words = experiment.words_of(&conditions, 1);
        let line = ["oncefs-bench".to_owned()].into_iter().chain(words).chain(["--json=x".to_owned()]);
        let parsed = crate::Cli::try_parse_from(line);
        assert!(parsed.is_ok(), "{}: {}", experiment.name, parsed.err().unwrap());
    }
}

#[test]
fn experiments_and_figures_have_names_of_their_own() {
    let mut names = BTreeSet::new();
    for experiment in papers().iter().flat_map(|paper| paper.experiments()) {
        assert!(names.insert(experiment.name), "two experiments are called {}", experiment.name);
    }
    for paper in papers() {
        let numbers: BTreeSet<&str> = paper.figures.iter().map(|figure| figure.number).collect();
        assert_eq!(numbers.len(), paper.figures.len(), "{}", paper.name);
        assert!(paper.figures.iter().all(|figure| !figure.claims.is_empty() && !figure.note.is_empty()));
    }
}

#[test]
fn a_page_without_readings_has_every_figure_and_says_that_nothing_was_measured() {
    for paper in papers() {
        let page = page::page(paper, &Readings::default(), |_| false);
        assert_eq!(page.matches("\n## ").count(), paper.figures.len());
        assert!(page.contains("Nothing was measured yet.") && page.is_ascii(), "{page}");
        assert!(paper.figures.iter().all(|figure| plots::svg(figure, &Readings::default()).is_none()));
    }
    let all: Vec<_> = papers().into_iter().map(|paper| (paper, Readings::default())).collect();
    assert!(overview::page(&all).contains("not measured yet"));
}

#[test]
fn figures_are_found_by_the_names_that_the_page_has() {
    let found = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        chosen(&lrlfs::PAPER, &names).map(|figures| figures.len())
    };
    assert_eq!(found(&["2"]).unwrap(), 1);
    assert_eq!(found(&[]).unwrap(), lrlfs::PAPER.figures.len());
    assert!(found(&["99"]).unwrap_err().to_string().contains("lrlfs has no figure 99"));
}
