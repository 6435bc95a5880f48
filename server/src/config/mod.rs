//! The configuration: finds, reads, checks and documents it. Tests: below and `tests/serve/config.rs`.

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
pub(crate) use model::{Declare, ShopifyIdSetting, SignatureEncoding, SourceFormat, VerifySetting};
pub(crate) use plan::{ConfigPlan, DATABASE, HandlerPlan, INBOX, InboxPlan, LISTEN, Secrets};
pub(crate) use problem::Invalid;
pub(crate) use reference::{reference, schema};
pub(crate) use rules::KeyLocation;
pub(crate) use seal::SealPlan;
pub(crate) use sources::{HttpPlan, PREFIX, RabbitmqPlan};
pub(crate) use stores::{StorePlace, StorePlan};
pub(crate) use value::secret;

/// Default config file.
const FILE: &str = "oncebox.toml";

/// A configuration and its text.
#[derive(Debug)]
pub(crate) struct Loaded {
    path: PathBuf,
    text: String,
    pub(crate) plan: ConfigPlan,
}

impl Loaded {
    /// Parses settings from the command line.
    pub(crate) fn from_text(text: String, secrets: Secrets) -> Result<Self, String> {
        match parse(&text, secrets) {
            Ok(plan) => Ok(Self { path: "the command line".into(), text, plan }),
            // Without lines and keys, because the user has not seen this text.
            Err(problems) => {
                Err(problems.into_iter().map(|problem| problem.what).collect::<Vec<_>>().join("; "))
            }
        }
    }

    /// Returns the error for a problem that appears only when the plan is built.
    pub(crate) fn wrong(self, at: usize, what: impl Into<String>) -> Invalid {
        let problems = vec![problem::ConfigProblem { at, what: what.into() }];
        Invalid { path: self.path, text: self.text, problems }
    }
}

/// Returns the named file, or the default file if it exists.
pub(crate) fn find(named: Option<&Path>) -> Option<PathBuf> {
    named.map(Path::to_owned).or_else(|| Path::new(FILE).exists().then(|| FILE.into()))
}

/// Reads and checks a file.
pub(crate) fn load(path: &Path, secrets: Secrets) -> Result<Loaded> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    match parse(&text, secrets) {
        Ok(plan) => Ok(Loaded { path: path.to_owned(), text, plan }),
        Err(problems) => Err(Invalid { path: path.to_owned(), text, problems }.into()),
    }
}

/// Plans a store from the command line: its URL or a reference to it, and its tables. No error quotes the URL, which may contain
/// a password.
pub(crate) fn store_at(url: &str, schema: Option<&str>, prefix: Option<&str>) -> Result<StorePlan, String> {
    if oncebox_postgres::Postgres::url_has_password(url) {
        let what = "--store contains a password, and every user of this machine can read command lines; use --store env:NAME";
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
    let stores = Loaded::from_text(text, Secrets::Stores)?.plan.stores;
    stores.into_iter().next().ok_or_else(|| "there is no store".into())
}

fn parse(text: &str, secrets: Secrets) -> Result<ConfigPlan, Vec<problem::ConfigProblem>> {
    let file: model::ConfigFile = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        vec![problem::ConfigProblem { at, what: problem::explained(error.message()) }]
    })?;
    let mut planner = plan::Planner { secrets, problems: Vec::new() };
    let plan = planner.plan(&file);
    plan.ok_or(planner.problems)
}

#[cfg(test)]
mod tests {
    use oncebox_untrusted_input::{MADE, feed};

    use super::*;

    // Any input is a plan, or every problem is reported without control characters.
    #[test]
    fn any_file_is_a_plan_or_explained() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../chaos/untrusted-input/corpus/config");
        let (mut plans, mut wrong) = (0, 0);
        feed(&corpus, 8, MADE / 4, |input| {
            let text = String::from_utf8_lossy(input).into_owned();
            match parse(&text, Secrets::Assume) {
                Ok(_) => plans += 1,
                Err(problems) => {
                    wrong += 1;
                    assert!(!problems.is_empty(), "no problem is reported");
                    let text = Invalid { path: FILE.into(), text, problems }.to_string();
                    for line in text.lines() {
                        assert!(line.starts_with("oncebox.toml:"), "{text:?} has no location");
                        assert!(!line.contains(char::is_control), "{text:?} controls the terminal");
                    }
                }
            }
        });
        assert!(plans > 100 && wrong > 100, "{plans} plans, {wrong} errors");
    }

    // A setting that is read and not passed on looks like one that works.
    #[test]
    fn settings_of_leases_crashes_and_sweeps_reach_the_plan() {
        let second = std::time::Duration::from_secs(1);
        let plan = |inbox: &str, handler: &str| {
            let text = format!(
                "[store.main]\nurl = \"sqlite:x.db\"\n[inbox.orders]\n{inbox}[inbox.orders.handler.ship]\n\
                 url = \"https://example.com\"\n{handler}"
            );
            let mut plan = parse(&text, Secrets::Assume).expect("a good file");
            let mut inbox = plan.inboxes.remove(0);
            (inbox.config, inbox.handlers.remove(0))
        };
        let (config, handler) = plan("", "");
        assert_eq!((config.lease, config.rescue, config.sweep), (30 * second, 2 * second, None));
        assert_eq!((handler.crashes, handler.crash_delay), (None, None));
        let inbox = "lease = \"1s\"\nsweep = \"5m\"\n";
        let (config, handler) =
            plan(inbox, "crashes = 5\ncrash_delay = \"7s\"\nlegacy = [\"old\", \"older\"]\n");
        assert_eq!((config.lease, config.rescue, config.sweep), (second, second, Some(300 * second)));
        assert_eq!((handler.crashes, handler.crash_delay), (Some(5), Some(7 * second)));
        assert_eq!(handler.legacy, ["old", "older"]);
    }
}
