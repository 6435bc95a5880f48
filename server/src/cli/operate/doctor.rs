//! `oncebox doctor`. Tests: `tests/operate/doctor.rs`.

use std::time::Duration;

use oncebox::store::Severity;
use oncebox::{ErrorKind, HandlerKey};

use super::CommandError;
use super::print;
use super::target::{Target, TargetArgs, cannot_open, handler};
use crate::cli::out::{self, Colour, escaped};
use crate::operator::{DoctorQuery, wire};
use crate::sidecar;

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// With --store: handlers that run; reports entries of all others
    #[arg(long, value_delimiter = ',', value_parser = handler)]
    handlers: Option<Vec<HandlerKey>>,
    /// With --store: longest redelivery delay of a sender, like 3days
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    redelivery: Option<Duration>,
}

/// Runs `oncebox doctor`; returns true if a finding is dangerous.
pub(super) async fn doctor(args: &DoctorArgs) -> Result<bool, CommandError> {
    let query = DoctorQuery { handlers: args.handlers.clone(), redelivery: args.redelivery };
    let findings = if let Some(finding) = schema(&args.target).await? {
        vec![finding]
    } else {
        let client = args.target.open().await?;
        let findings = client.doctor(&query).await?.findings;
        if findings.is_empty() {
            print::note_if_empty(&args.target, &client.counts(None).await?)?;
        }
        findings
    };
    for finding in &findings {
        if args.target.json {
            print::json(finding)?;
        } else {
            let wire::DoctorFinding { severity, code, what, fix } = finding;
            let colour = Severity::ALL
                .into_iter()
                .find(|one| one.as_str() == severity)
                .map_or(Colour::Plain, Into::into);
            let severity = colour.paint(&escaped(severity), out::colours());
            out::line(&format!("{severity}: {} ({}); {}", escaped(what), escaped(code), escaped(fix)))?;
        }
    }
    if findings.is_empty() && !args.target.json {
        out::line("no problems found")?;
    }
    Ok(findings.iter().any(|finding| finding.severity == Severity::Danger.as_str()))
}

/// Returns a finding if the store cannot open its tables. With the API, the serving process has opened them.
async fn schema(target: &TargetArgs) -> Result<Option<wire::DoctorFinding>, CommandError> {
    let (_, found) = target.resolve()?;
    let (Target::Store(store) | Target::Config(store, _)) = found else { return Ok(None) };
    let finding = |what: String, fix: &str| wire::DoctorFinding {
        severity: Severity::Danger.as_str().into(),
        code: "schema".into(),
        what,
        fix: fix.into(),
    };
    match sidecar::pending(&store).await {
        Ok((_, missing)) if missing.is_empty() => Ok(None),
        // Opening the store reports a missing file.
        Ok(_) if sidecar::is_missing(&store) => Ok(None),
        Ok((version, missing)) => {
            let steps: Vec<String> =
                missing.iter().map(|step| format!("{} ({})", step.version, step.name)).collect();
            let what = format!("the tables have version {version}; missing steps: {}", steps.join(", "));
            Ok(Some(finding(what, "run `oncebox migrate apply` as the owner of the tables")))
        }
        Err(error) if error.kind() == ErrorKind::SchemaTooNew => {
            Ok(Some(finding(error.what().to_owned(), error.kind().advice())))
        }
        Err(error) => Err(cannot_open(error)),
    }
}
