//! How far long work has come: on a terminal alone, and never where the output goes.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line that is redrawn; nothing at all if the standard error is no terminal.
pub(crate) struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// Work of known length.
    pub(crate) fn of(total: u64, what: &'static str) -> Self {
        Self::styled(ProgressBar::new(total), "{wide_bar} {pos}/{len} {msg} {elapsed}", what)
    }

    /// Work of which nobody knows the length.
    pub(crate) fn unknown(what: &'static str) -> Self {
        Self::styled(ProgressBar::new_spinner(), "{spinner} {pos} {msg} {elapsed}", what)
    }

    fn styled(bar: ProgressBar, template: &str, what: &'static str) -> Self {
        // Draws nothing unless it is a terminal.
        bar.set_draw_target(ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self(bar)
    }

    /// So much is done.
    pub(crate) fn at(&self, done: u64) {
        self.0.set_position(done);
    }

    /// So much more is done.
    pub(crate) fn add(&self, more: usize) {
        self.0.inc(more as u64);
    }

    /// What is said of it beside the number.
    pub(crate) fn say(&self, what: String) {
        self.0.set_message(what);
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
