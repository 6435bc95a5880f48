//! Progress of long commands, on standard error if it is a terminal. Tests: `tests/operate/output.rs`.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress line. Hidden unless standard error is a terminal.
pub(crate) struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// Starts a bar for work of known length.
    pub(crate) fn of(total: u64, what: &'static str) -> Self {
        Self::styled(ProgressBar::new(total), "{wide_bar} {pos}/{len} {msg} {elapsed}", what)
    }

    /// Starts a spinner for work of unknown length.
    pub(crate) fn unknown(what: &'static str) -> Self {
        Self::styled(ProgressBar::new_spinner(), "{spinner} {pos} {msg} {elapsed}", what)
    }

    fn styled(bar: ProgressBar, template: &str, what: &'static str) -> Self {
        bar.set_draw_target(ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self(bar)
    }

    /// Sets the amount of work done.
    pub(crate) fn at(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Adds to the amount of work done.
    pub(crate) fn add(&self, more: usize) {
        self.0.inc(more as u64);
    }

    /// Sets the text beside the number.
    pub(crate) fn set_message(&self, what: String) {
        self.0.set_message(what);
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
