//! Logs: for people or for machines, never a payload or a secret, and never a flood.

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

/// One line for each message: what became of it.
pub(crate) const MESSAGES: &str = "oncebox::messages";

/// What the library logs of single messages: the lines of [`MESSAGES`] say the same. And that the driver had to wait for a
/// connection, which is said when the wait is over; what the store has trouble with is said when it begins.
const DOUBLED: &str = "oncebox::observe=off,oncebox::inbox=error,sqlx::pool::acquire=off";

/// How logs are written.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// What is logged, as in `RUST_LOG`: `info`, `warn`, `info,oncebox::messages=off`.
    #[arg(long, value_name = "FILTER", env = "RUST_LOG", default_value = "info", hide_env_values = true)]
    log: String,
    /// How it is written.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object on each line.
    Json,
}

impl LogArgs {
    pub(crate) fn is_json(&self) -> bool {
        self.log_format == LogFormat::Json
    }

    /// Sends everything that is logged to the standard error, and spans to where they are exported.
    pub(crate) fn start(&self, telemetry: &Telemetry) -> Result<()> {
        let parsed = || {
            EnvFilter::builder().parse(format!("{DOUBLED},{}", self.log)).with_context(|| {
                format!(
                    "the log filter {:?} cannot be read; write it like `info` or `warn,oncebox=debug`",
                    self.log
                )
            })
        };
        let filter = parsed()?;
        let flood = LogLimiter { json: self.is_json(), places: Mutex::default() };
        // Spans are exported whatever is logged, and lines are no part of them. Those of a lower level, which are calls of the store,
        // are exported if the log filter asks for them.
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
                let text = stderr.event_format(LimitedFormat { flood, inner: TextFormat { colours } });
                registry.with(text.with_filter(filter)).try_init()
            }
            LogFormat::Json => {
                let json = stderr.json().flatten_event(true).with_current_span(false).with_span_list(false);
                let json = json.map_event_format(|inner| LimitedFormat { flood, inner });
                registry.with(json.with_filter(filter)).try_init()
            }
        }
        .context("logs are written somewhere else already")
    }
}

/// A line for people: time, level if it matters, what happened, and its circumstances.
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
            self.message = harmless(&format!("{value:?}"));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(self.others, " {}={}", field.name(), harmless(&format!("{value:?}")));
        }
    }
}

/// Nothing that a terminal would obey, and no second line.
fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// So many lines of one kind are written in this time; the rest is counted.
const MAX_LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// Keeps an outage from filling the disk: lines from one place of the program are written up to a number in a time, and
/// one line tells how many were left out.
struct LogLimiter {
    json: bool,
    places: Mutex<HashMap<Identifier, CallsiteBudget>>,
}

struct CallsiteBudget {
    since: Instant,
    written: u32,
    left_out: u64,
}

impl LogLimiter {
    /// Whether a line is written, and how many were left out before it.
    fn admit(&self, from: Identifier, now: Instant) -> (bool, u64) {
        let mut places = self.places.lock();
        let place = places.entry(from).or_insert(CallsiteBudget { since: now, written: 0, left_out: 0 });
        let mut left_out = 0;
        if now.duration_since(place.since) >= WINDOW {
            left_out = place.left_out;
            *place = CallsiteBudget { since: now, written: 0, left_out: 0 };
        }
        let admitted = place.written < MAX_LINES;
        if admitted {
            place.written += 1;
        } else {
            place.left_out += 1;
        }
        (admitted, left_out)
    }

    /// Not through the log itself, which is in the middle of an event.
    fn tell(&self, event: &Event<'_>, left_out: u64) {
        let mut fields = LogFields::default();
        event.record(&mut fields);
        let like: String = fields.message.chars().take(40).collect();
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        if self.json {
            let line = serde_json::json!({
                "timestamp": time, "level": "INFO", "message": "lines were left out", "left_out": left_out, "like": like,
            });
            eprintln!("{line}");
        } else {
            eprintln!("{time} … {left_out} more lines like \"{like}\" were left out");
        }
    }
}

/// Writes lines as another does, unless they are a flood.
struct LimitedFormat<F> {
    flood: LogLimiter,
    inner: F,
}

impl<S, N, F> FormatEvent<S, N> for LimitedFormat<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, cx: &FmtContext<'_, S, N>, out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let (admitted, left_out) = self.flood.admit(event.metadata().callsite(), Instant::now());
        if left_out > 0 {
            self.flood.tell(event, left_out);
        }
        if admitted { self.inner.format_event(cx, out, event) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// J6.
    #[test]
    fn a_flood_is_cut_and_counted() {
        let flood = LogLimiter { json: false, places: Mutex::default() };
        let place = tracing::callsite!(name: "here", kind: tracing::metadata::Kind::EVENT, level: Level::INFO, fields: );
        let from = tracing::callsite::Callsite::metadata(place).callsite();
        let start = Instant::now();
        let written = (0..1_000).filter(|_| flood.admit(from.clone(), start).0).count();
        assert_eq!(written, MAX_LINES as usize);
        assert_eq!(flood.admit(from.clone(), start + WINDOW), (true, 900));
        assert_eq!(flood.admit(from, start + WINDOW), (true, 0));
    }

    #[test]
    fn nothing_reaches_the_terminal_that_it_would_obey() {
        assert_eq!(harmless("a\x1b[31m\nb"), "a [31m b");
    }
}
