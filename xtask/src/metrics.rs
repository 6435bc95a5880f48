//! `docs/metrics.md`: every metric, written from the table that describes them in the code. Tests: below.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use oncebox::observe::names::{LabelValues, METRICS};

const FILE: &str = "docs/metrics.md";

const INTRO: &str = "\
<!-- Written by `cargo xtask metrics` from `oncebox::observe::names`. Change the code, then run it again. -->

# Metrics

Every metric of an inbox. Values of labels are bounded: they are the words below, or names of inboxes, handlers and sources;
never text of a message. [Observing an inbox](guides/observe.md) explains how to export them, [dashboard and
alerts](operations/README.md) how to use them.

| question | metric |
|---|---|
| processed | `oncebox_settled_total{event=\"done\"}` |
| duplicates, conflicts, stale | `oncebox_accepted_total{outcome=\"duplicate\"}`, `\"conflict\"`, `\"stale\"`; conflicts that are allowed in `oncebox_allowed_conflicts_total` |
| missing key | `oncebox_refused_total{reason=\"missing_key\"}`, or `oncebox_undeduplicated_total{reason=\"missing_key\"}` where that is allowed |
| retries | `oncebox_settled_total{event=\"fail\"}` |
| poisoned | `oncebox_settled_total{event=~\"exhaust|reject|crash_out\"}`; in total: `oncebox_poisoned_entries` |
| crashes | `oncebox_settled_total{event=~\"crash|crash_out\"}` |
| lease lost | `oncebox_lease_lost_total` |
| lag | `oncebox_lag_seconds`; waiting now: `oncebox_oldest_due_seconds` |
| held back | `oncebox_blocked_entries`, behind a poisoned entry with their ordering key; the oldest: `oncebox_blocked_oldest_seconds` |
| refused senders | `oncebox_http_unverified_total`, by reason |
";

/// Writes the file.
pub(crate) fn write(root: &Path) -> Result<()> {
    fs::write(root.join(FILE), document()).with_context(|| format!("cannot write {FILE}"))?;
    println!("wrote {FILE}");
    Ok(())
}

/// Fails if the file is out of date.
pub(crate) fn check(root: &Path) -> Result<()> {
    let found = fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    if found != document() {
        bail!("{FILE} is out of date: run `cargo xtask metrics` and commit what it writes");
    }
    println!("{FILE} is up to date");
    Ok(())
}

fn document() -> String {
    let mut text =
        format!("{INTRO}\n## All of them\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n");
    for metric in METRICS {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{}`", label.name)).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            metric.name,
            metric.kind.as_str(),
            labels.join(", "),
            metric.help
        );
    }
    text.push_str("\n## Values of labels\n\n| metric | label | values |\n|---|---|---|\n");
    let mut names: Vec<&str> = Vec::new();
    for metric in METRICS {
        for label in metric.labels {
            match label.values {
                LabelValues::Words(words) => {
                    let _ = writeln!(text, "| `{}` | `{}` | {} |", metric.name, label.name, words.join(", "));
                }
                LabelValues::Names(what) if !names.contains(&label.name) => {
                    names.push(label.name);
                    let _ = writeln!(text, "| all that have it | `{}` | {what} |", label.name);
                }
                LabelValues::Names(_) => {}
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use oncebox::ErrorKind;

    use super::*;

    #[test]
    fn the_committed_file_is_up_to_date() {
        check(&crate::workspace::root()).unwrap();
    }

    /// Returns all metric names of ours in a text, without the suffixes of a Prometheus histogram.
    fn named(text: &str) -> Vec<&str> {
        let word = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        let words =
            text.split(word).filter(|word| word.starts_with("oncebox_") && *word != "oncebox_telemetry");
        let plain = |word| {
            let known = |name: &str| METRICS.iter().any(|metric| metric.name == name);
            let parts = ["_bucket", "_count", "_sum"].into_iter();
            let mut cut = parts.filter_map(|part| str::strip_suffix(word, part));
            if known(word) { word } else { cut.find(|name| known(name)).unwrap_or(word) }
        };
        words.map(plain).collect()
    }

    /// Returns the selectors `name{label="value",...}` of a text.
    fn selectors(text: &str) -> Vec<(&str, &str)> {
        let mut found = Vec::new();
        for (at, _) in text.match_indices('{') {
            let name = text[..at].rsplit(|c: char| !(c.is_ascii_lowercase() || c == '_')).next().unwrap();
            if name.starts_with("oncebox_") {
                found.push((name, &text[at + 1..at + text[at..].find('}').unwrap()]));
            }
        }
        found
    }

    fn check_text(file: &str, text: &str) {
        let text = &text.replace("\\\"", "\"");
        for name in named(text) {
            assert!(METRICS.iter().any(|metric| metric.name == name), "{file}: there is no metric {name}");
        }
        for (name, labels) in selectors(text) {
            let name = named(name)[0];
            let metric = METRICS.iter().find(|metric| metric.name == name).unwrap();
            for pair in labels.split("\",").filter(|pair| !pair.is_empty()) {
                let (label, value) = pair.split_once(['=', '!']).unwrap();
                let label = label.trim();
                if label == "le" {
                    continue;
                }
                let known =
                    metric.label(label).unwrap_or_else(|| panic!("{file}: {name} has no label {label}"));
                let value = value.trim_start_matches(['=', '~']).trim_matches('"');
                if let (LabelValues::Words(words), false) = (known.values, value.starts_with('$')) {
                    for word in value.split('|') {
                        assert!(words.contains(&word), "{file}: {name} never has {label}={word}");
                    }
                }
            }
        }
        // A grouping label has to be a label of a metric.
        for (at, _) in text.match_indices(" by (") {
            let list = &text[at + 5..at + text[at..].find(')').unwrap()];
            for label in list.split(',').map(str::trim).filter(|label| *label != "le") {
                let known = METRICS.iter().any(|metric| metric.label(label).is_some());
                assert!(known, "{file}: nothing has a label {label}");
            }
        }
    }

    #[test]
    fn what_dashboards_alerts_and_pages_name_exists() {
        let root = crate::workspace::root();
        let files = [
            "docs/operations/grafana-dashboard.json",
            "docs/operations/prometheus-alerts.yml",
            "docs/operations/README.md",
            "docs/guides/observe.md",
            FILE,
        ];
        for file in files {
            let text = fs::read_to_string(root.join(file)).unwrap();
            assert!(!named(&text).is_empty(), "{file} names no metric");
            check_text(file, &text);
        }
    }

    #[test]
    fn the_dashboard_is_json_and_each_alert_has_a_runbook() {
        let root = crate::workspace::root();
        let dashboard = fs::read_to_string(root.join("docs/operations/grafana-dashboard.json")).unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
        assert!(dashboard["panels"].as_array().unwrap().len() >= 10);
        let alerts = fs::read_to_string(root.join("docs/operations/prometheus-alerts.yml")).unwrap();
        let runbooks = fs::read_to_string(root.join("docs/operations/README.md")).unwrap();
        let rules: Vec<&str> = alerts.split("- alert: ").skip(1).collect();
        assert!(rules.len() >= 8);
        for rule in rules {
            let name = rule.lines().next().unwrap().trim();
            for part in ["expr:", "severity:", "summary:", "runbook_url:"] {
                assert!(rule.contains(part), "{name} has no {part}");
            }
            let section = runbooks.split(&format!("### {name}\n")).nth(1);
            let section = section.unwrap_or_else(|| panic!("{name} has no runbook"));
            let text = section.split("\n#").next().unwrap();
            assert!(text.len() > 150, "the runbook of {name} says too little");
            let anchor = format!("#{}", name.to_lowercase());
            assert!(rule.contains(&anchor), "{name} does not link to its runbook {anchor}");
        }
    }

    /// An outage of any kind is an alert, and its runbook names the kinds that need an operator.
    #[test]
    fn every_outage_is_an_alert() {
        let root = crate::workspace::root();
        let alerts = fs::read_to_string(root.join("docs/operations/prometheus-alerts.yml")).unwrap();
        let rule = alerts.split("- alert: OnceboxStoreFailing\n").nth(1).unwrap();
        let (_, selector) = selectors(rule)[0];
        let named = selector.trim_start_matches("result=~\"").trim_end_matches('"');
        let outages = || ErrorKind::ALL.into_iter().filter(|kind| kind.is_outage()).map(ErrorKind::as_str);
        assert_eq!(named.split('|').collect::<BTreeSet<_>>(), outages().collect());
        let runbooks = fs::read_to_string(root.join("docs/operations/README.md")).unwrap();
        let runbook =
            runbooks.split("### OnceboxStoreFailing\n").nth(1).unwrap().split("\n#").next().unwrap();
        for kind in outages() {
            assert!(runbook.contains(&format!("`{kind}`")), "the runbook does not name {kind}");
        }
    }

    #[test]
    #[should_panic(expected = "never has event=gone")]
    fn a_word_that_never_comes_is_noticed() {
        check_text("test", r#"oncebox_settled_total{event="gone"}"#);
    }
}
