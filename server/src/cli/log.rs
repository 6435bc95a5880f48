//! The log: as text or JSON, without payloads and secrets, and with a limit on repeated lines. Tests: below.

use std::collections::HashMap;
use std::fmt;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use oncebox_telemetry::Telemetry;
use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{EnvFilter, FilterExt as _, LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Log target with one line for each message.
pub(crate) const MESSAGES: &str = "oncebox::messages";

/// Filter for lines that repeat others: the library's lines about single messages, which [`MESSAGES`] covers, and the driver's
/// late line about waiting for a connection.
const REPEATED: &str = "oncebox::observe=off,oncebox::inbox=error,sqlx::pool::acquire=off";

/// Arguments of the log.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Log filter, like `warn` or `info,oncebox::messages=off`
    #[arg(long, value_name = "FILTER", env = "RUST_LOG", default_value = "info", hide_env_values = true)]
    log: String,
    /// Log format
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    /// Plain text
    Text,
    /// One JSON object per line
    Json,
}

impl LogArgs {
    pub(crate) fn is_json(&self) -> bool {
        self.log_format == LogFormat::Json
    }

    /// Writes log lines to standard error, and exports spans.
    pub(crate) fn start(&self, telemetry: &Telemetry) -> Result<()> {
        let parsed = || {
            EnvFilter::builder().parse(format!("{REPEATED},{}", self.log)).with_context(|| {
                format!(
                    "the log filter {:?} is not valid; write it like `info` or `warn,oncebox=debug`",
                    self.log
                )
            })
        };
        let filter = parsed()?;
        let limiter = LogLimiter { json: self.is_json(), callsites: Mutex::default() };
        // Spans up to INFO are exported whatever the log filter is. Lower ones, such as calls of the store, only if it includes them.
        let ours = |about: &Metadata<'_>| about.is_span() && about.target().starts_with("oncebox");
        let always = |about: &Metadata<'_>| *about.level() <= Level::INFO;
        let always = filter_fn(always).with_max_level_hint(LevelFilter::INFO);
        let exported = filter_fn(ours).with_max_level_hint(LevelFilter::TRACE).and(always.or(parsed()?));
        let spans = telemetry.layer_at(LevelFilter::TRACE).map(|layer| layer.with_filter(exported));
        let registry = tracing_subscriber::registry().with(spans);
        let stderr = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => {
                let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
                let text = stderr.event_format(LimitedFormat { limiter, inner: TextFormat { colours } });
                registry.with(text.with_filter(filter)).try_init()
            }
            LogFormat::Json => {
                let json = stderr.json().flatten_event(true).with_current_span(false).with_span_list(false);
                let json = json.map_event_format(|inner| LimitedFormat { limiter, inner });
                registry.with(json.with_filter(filter)).try_init()
            }
        }
        .context("a logger is installed already")
    }
}

/// Text format of a line: time, level unless INFO, message, fields.
struct TextFormat {
    colours: bool,
}

impl<S, N> FormatEvent<S, N> for TextFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        let mut fields = LogFields::default();
        event.record(&mut fields);
        let colour = match level {
            Level::ERROR if self.colours => "\x1b[31m",
            Level::WARN if self.colours => "\x1b[33m",
            _ => "",
        };
        let off = if colour.is_empty() { "" } else { "\x1b[0m" };
        write!(out, "{} ", humantime::format_rfc3339_seconds(SystemTime::now()))?;
        if target == MESSAGES {
            return writeln!(out, "{colour}{}{off}", fields.message);
        }
        if level != Level::INFO {
            write!(out, "{colour}{level}{off} ")?;
        }
        writeln!(out, "{}{}", fields.message, fields.others)
    }
}

#[derive(Default)]
struct LogFields {
    message: String,
    others: String,
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        use fmt::Write as _;
        if field.name() == "message" {
            self.message = without_controls(&format!("{value:?}"));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(self.others, " {}={}", field.name(), without_controls(&format!("{value:?}")));
        }
    }
}

/// Replaces control characters, so that a line cannot control a terminal or start a new line.
fn without_controls(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Maximum lines from one callsite per [`WINDOW`]. Further lines are counted.
const MAX_LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// Limits the lines of each callsite, so that an outage cannot fill the disk, and reports the number of suppressed lines.
struct LogLimiter {
    json: bool,
    callsites: Mutex<HashMap<Identifier, CallsiteBudget>>,
}

struct CallsiteBudget {
    since: Instant,
    written: u32,
    suppressed: u64,
}

impl LogLimiter {
    /// Returns true if a line may be written, and the number of lines suppressed before it.
    fn admit(&self, from: Identifier, now: Instant) -> (bool, u64) {
        let mut callsites = self.callsites.lock();
        let budget =
            callsites.entry(from).or_insert(CallsiteBudget { since: now, written: 0, suppressed: 0 });
        let mut suppressed = 0;
        if now.duration_since(budget.since) >= WINDOW {
            suppressed = budget.suppressed;
            *budget = CallsiteBudget { since: now, written: 0, suppressed: 0 };
        }
        let admitted = budget.written < MAX_LINES;
        if admitted {
            budget.written += 1;
        } else {
            budget.suppressed += 1;
        }
        (admitted, suppressed)
    }

    /// Reports suppressed lines. Writes directly, because the logger is in the middle of an event.
    fn report(&self, event: &Event<'_>, suppressed: u64) {
        let mut fields = LogFields::default();
        event.record(&mut fields);
        let like: String = fields.message.chars().take(40).collect();
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        if self.json {
            let line = serde_json::json!({
                "timestamp": time, "level": "INFO", "message": "log lines suppressed", "suppressed": suppressed, "like": like,
            });
            eprintln!("{line}");
        } else {
            eprintln!("{time} … suppressed {suppressed} more lines like \"{like}\"");
        }
    }
}

/// Wraps a format with a [`LogLimiter`].
struct LimitedFormat<F> {
    limiter: LogLimiter,
    inner: F,
}

impl<S, N, F> FormatEvent<S, N> for LimitedFormat<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, cx: &FmtContext<'_, S, N>, out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let (admitted, suppressed) = self.limiter.admit(event.metadata().callsite(), Instant::now());
        if suppressed > 0 {
            self.limiter.report(event, suppressed);
        }
        if admitted { self.inner.format_event(cx, out, event) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// J6.
    #[test]
    fn repeated_lines_are_suppressed_and_counted() {
        let limiter = LogLimiter { json: false, callsites: Mutex::default() };
        let place = tracing::callsite!(name: "here", kind: tracing::metadata::Kind::EVENT, level: Level::INFO, fields: );
        let from = tracing::callsite::Callsite::metadata(place).callsite();
        let start = Instant::now();
        let written = (0..1_000).filter(|_| limiter.admit(from.clone(), start).0).count();
        assert_eq!(written, MAX_LINES as usize);
        assert_eq!(limiter.admit(from.clone(), start + WINDOW), (true, 900));
        assert_eq!(limiter.admit(from, start + WINDOW), (true, 0));
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(without_controls("a\x1b[31m\nb"), "a [31m b");
    }
}
