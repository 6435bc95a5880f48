//! The configuration: found, read, checked, explained.

mod api;
mod example;
mod model;
mod plan;
mod problem;
mod reference;
mod rules;
mod sources;
mod value;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

pub(crate) use api::API_LISTEN;
pub(crate) use example::EXAMPLE;
pub(crate) use model::{Declare, Encoding, Format, Verify};
pub(crate) use plan::{
    DATABASE, HandlerPlan, INBOX, InboxPlan, LISTEN, Plan, Secrets, StorePlace, StorePlan,
};
pub(crate) use problem::Invalid;
pub(crate) use reference::{reference, schema};
pub(crate) use rules::Place;
pub(crate) use sources::{HttpPlan, PREFIX, RabbitmqPlan};

/// The file that is read if none is named.
const FILE: &str = "oncebox.toml";

/// A configuration that was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    path: PathBuf,
    text: String,
    pub(crate) plan: Plan,
}

impl Loaded {
    /// Settings that are in no file.
    pub(crate) fn quick(text: String) -> Result<Self, String> {
        match parse(&text, Secrets::Read) {
            Ok(plan) => Ok(Self { path: "the command line".into(), text, plan }),
            // Lines and names of keys would be those of a file nobody has seen.
            Err(problems) => {
                Err(problems.into_iter().map(|problem| problem.what).collect::<Vec<_>>().join("; "))
            }
        }
    }

    /// The error for something that only shows when what is planned is built.
    pub(crate) fn wrong(self, at: usize, what: impl Into<String>) -> Invalid {
        let problems = vec![problem::Problem { at, what: what.into() }];
        Invalid { path: self.path, text: self.text, problems }
    }
}

/// The file to read: the one that is named, or the one in this directory if there is one.
pub(crate) fn find(named: Option<&Path>) -> Option<PathBuf> {
    named.map(Path::to_owned).or_else(|| Path::new(FILE).exists().then(|| FILE.into()))
}

/// Reads a file and checks everything in it.
pub(crate) fn load(path: &Path, secrets: Secrets) -> Result<Loaded> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    match parse(&text, secrets) {
        Ok(plan) => Ok(Loaded { path: path.to_owned(), text, plan }),
        Err(problems) => Err(Invalid { path: path.to_owned(), text, problems }.into()),
    }
}

fn parse(text: &str, secrets: Secrets) -> Result<Plan, Vec<problem::Problem>> {
    let file: model::File = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        vec![problem::Problem { at, what: problem::explained(error.message()) }]
    })?;
    let mut planner = plan::Planner { secrets, problems: Vec::new() };
    let plan = planner.plan(&file);
    plan.ok_or(planner.problems)
}
