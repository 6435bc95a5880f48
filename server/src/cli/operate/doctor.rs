//! `oncebox doctor`.

use std::time::Duration;

use oncebox::store::Severity;
use oncebox::{ErrorKind, HandlerKey};

use super::CommandError;
use super::client::DoctorQuery;
use super::print;
use super::target::{Target, TargetArgs, cannot_open, handler};
use crate::api::wire;
use crate::cli::out::{self, Colour, escaped};
use crate::sidecar;

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    place: TargetArgs,
    /// The handlers that run somewhere, to find what waits for others. A configuration or a process that serves knows them.
    #[arg(long, value_delimiter = ',', value_parser = handler)]
    handlers: Option<Vec<HandlerKey>>,
    /// How long after its first delivery a message may come again, as in `3days`, to compare it with how long keys are
    /// remembered. A configuration or a process that serves knows it of webhooks, and of queues with `redelivers`.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    redelivery: Option<Duration>,
}

/// Says whether something dangerous was found.
pub(super) async fn doctor(args: &DoctorArgs) -> Result<bool, CommandError> {
    let asked = DoctorQuery { handlers: args.handlers.clone(), redelivery: args.redelivery };
    let findings = if let Some(finding) = schema(&args.place).await? {
        vec![finding]
    } else {
        let client = args.place.open().await?;
        let findings = client.doctor(&asked).await?;
        if findings.is_empty() {
            print::if_empty(&args.place, &client.counts(None).await?)?;
        }
        findings
    };
    for finding in &findings {
        if args.place.json {
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
    if findings.is_empty() && !args.place.json {
        out::line("all is well")?;
    }
    Ok(findings.iter().any(|finding| finding.severity == Severity::Danger.as_str()))
}

/// What is wrong with the tables, if they cannot even be opened. A process that serves has opened them.
async fn schema(place: &TargetArgs) -> Result<Option<wire::DoctorFinding>, CommandError> {
    let (_, found) = place.found()?;
    let (Target::Store(store) | Target::Config(store, _)) = found else { return Ok(None) };
    let finding = |what: String, fix: &str| wire::DoctorFinding {
        severity: Severity::Danger.as_str().into(),
        code: "schema".into(),
        what,
        fix: fix.into(),
    };
    match sidecar::pending(&store).await {
        Ok((_, missing)) if missing.is_empty() => Ok(None),
        // A file that is not there is told by who opens it.
        Ok(_) if sidecar::is_missing(&store) => Ok(None),
        Ok((version, missing)) => {
            let steps: Vec<String> =
                missing.iter().map(|step| format!("{} ({})", step.version, step.name)).collect();
            let what = format!("the tables have version {version} and lack {}", steps.join(", "));
            Ok(Some(finding(what, "run `oncebox migrate apply` as the owner of the tables")))
        }
        Err(error) if error.kind() == ErrorKind::SchemaTooNew => {
            Ok(Some(finding(error.what().to_owned(), error.kind().advice())))
        }
        Err(error) => Err(cannot_open(error)),
    }
}
