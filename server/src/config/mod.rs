//! The configuration: found, read, checked, explained.

mod api;
mod example;
mod headers;
mod health;
mod model;
mod plan;
mod problem;
mod reference;
mod rules;
mod seal;
mod secrets;
mod sources;
mod stores;
mod value;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

pub(crate) use api::API_LISTEN;
pub(crate) use example::EXAMPLE;
pub(crate) use model::{Declare, Encoding, Format, ShopifyId, Verify};
pub(crate) use plan::{DATABASE, HandlerPlan, INBOX, InboxPlan, LISTEN, Plan, Secrets};
pub(crate) use problem::Invalid;
pub(crate) use reference::{reference, schema};
pub(crate) use rules::Place;
pub(crate) use seal::SealPlan;
pub(crate) use sources::{HttpPlan, PREFIX, RabbitmqPlan};
pub(crate) use stores::{StorePlace, StorePlan};
pub(crate) use value::secret;

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
    pub(crate) fn quick(text: String, secrets: Secrets) -> Result<Self, String> {
        match parse(&text, secrets) {
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

/// A store that is named on the command line: by its URL, or by where that is kept, and where its tables are. No error repeats
/// the URL, since it may hold a password.
pub(crate) fn store_at(url: &str, schema: Option<&str>, prefix: Option<&str>) -> Result<StorePlan, String> {
    if oncebox_postgres::Postgres::url_has_password(url) {
        let what = "--store holds a password, and everybody on this machine can read command lines; use --store env:NAME";
        return Err(what.into());
    }
    let mut store = toml::Table::new();
    store.insert("url".into(), url.into());
    store.insert("migrate".into(), false.into());
    for (name, value) in [("schema", schema), ("prefix", prefix)] {
        store.extend(value.map(|value| (name.to_owned(), value.into())));
    }
    let mut file = toml::Table::new();
    file.insert("store".into(), toml::Table::from_iter([("main".to_owned(), store.into())]).into());
    file.insert(
        "inbox".into(),
        toml::Table::from_iter([(INBOX.to_owned(), toml::Table::new().into())]).into(),
    );
    let text = toml::to_string(&file).map_err(|error| error.to_string())?;
    // An operator may look at what only others may write.
    let stores = Loaded::quick(text, Secrets::Stores)?.plan.stores;
    stores.into_iter().next().ok_or_else(|| "there is no store".into())
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

#[cfg(test)]
mod tests {
    use oncebox_strangers::{MADE, feed};

    use super::*;

    // Whatever is in the file: it is a plan, or every problem is told in words that a terminal can show.
    #[test]
    fn any_file_is_a_plan_or_explained() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../chaos/strangers/corpus/config");
        let (mut plans, mut wrong) = (0, 0);
        feed(&corpus, 8, MADE / 4, |input| {
            let text = String::from_utf8_lossy(input).into_owned();
            match parse(&text, Secrets::Assume) {
                Ok(_) => plans += 1,
                Err(problems) => {
                    wrong += 1;
                    assert!(!problems.is_empty(), "nothing is said to be wrong");
                    let told = Invalid { path: FILE.into(), text, problems }.to_string();
                    for line in told.lines() {
                        assert!(line.starts_with("oncebox.toml:"), "{told:?} does not say where");
                        assert!(!line.contains(char::is_control), "{told:?} controls the terminal");
                    }
                }
            }
        });
        assert!(plans > 100 && wrong > 100, "{plans} plans and {wrong} that were none");
    }
}
