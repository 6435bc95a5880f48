//! Checks the limits of health. Tests: `tests/serve/config.rs`.

use std::time::Duration;

use oncebox::HealthLimits;
use oncebox::store::BacklogParams;

use super::model;
use super::plan::Planner;
use super::value::{Located, TimeSpan, Window};

/// A limit and its location in the file.
struct HealthLimit<T> {
    name: &'static str,
    /// Offset in the file, if it is set there.
    at: Option<usize>,
    value: Option<T>,
}

impl<T> HealthLimit<T> {
    fn new<S>(name: &'static str, set: Option<&Located<S>>, value: Option<T>) -> Self {
        Self { name, at: set.map(Located::at), value }
    }
}

impl Planner {
    pub(super) fn health(&mut self, health: &model::HealthTable) -> HealthLimits {
        let mut limits = HealthLimits::default();
        let spans = [
            (&health.idle_degraded, &mut limits.idle_degraded),
            (&health.idle_unhealthy, &mut limits.idle_unhealthy),
            (&health.store_unhealthy, &mut limits.store_unhealthy),
        ];
        for (set, limit) in spans {
            *limit = set.as_ref().map_or(*limit, |span: &Located<TimeSpan>| span.0);
        }
        let windows = [
            (&health.lag_degraded, &mut limits.lag_degraded),
            (&health.lag_unhealthy, &mut limits.lag_unhealthy),
            (&health.blocked_degraded, &mut limits.blocked_degraded),
            (&health.blocked_unhealthy, &mut limits.blocked_unhealthy),
        ];
        for (set, limit) in windows {
            *limit = set.as_ref().map_or(*limit, |window: &Located<Window>| window.0);
        }
        (limits.backlog_degraded, limits.backlog_unhealthy) =
            (health.backlog_degraded.as_deref().copied(), health.backlog_unhealthy.as_deref().copied());
        let max = BacklogParams::COUNTED;
        for set in [&health.backlog_degraded, &health.backlog_unhealthy].into_iter().flatten() {
            if **set > max {
                self.wrong(
                    set.at(),
                    format!(
                        "messages are counted only up to {max}, so this limit would never apply; lower it"
                    ),
                );
            }
        }
        let store = HealthLimit::new(
            "store_unhealthy",
            health.store_unhealthy.as_ref(),
            Some(limits.store_unhealthy),
        );
        self.in_order(None, &store);
        let idle = health.idle_degraded.as_ref();
        let idle = HealthLimit::new("idle_degraded", idle, Some(limits.idle_degraded));
        let worse = health.idle_unhealthy.as_ref();
        self.in_order(Some(&idle), &HealthLimit::new("idle_unhealthy", worse, Some(limits.idle_unhealthy)));
        self.in_order(
            Some(&HealthLimit::new("lag_degraded", health.lag_degraded.as_ref(), limits.lag_degraded)),
            &HealthLimit::new("lag_unhealthy", health.lag_unhealthy.as_ref(), limits.lag_unhealthy),
        );
        self.in_order(
            Some(&HealthLimit::new(
                "blocked_degraded",
                health.blocked_degraded.as_ref(),
                limits.blocked_degraded,
            )),
            &HealthLimit::new(
                "blocked_unhealthy",
                health.blocked_unhealthy.as_ref(),
                limits.blocked_unhealthy,
            ),
        );
        self.in_order(
            Some(&HealthLimit::new(
                "backlog_degraded",
                health.backlog_degraded.as_ref(),
                limits.backlog_degraded,
            )),
            &HealthLimit::new(
                "backlog_unhealthy",
                health.backlog_unhealthy.as_ref(),
                limits.backlog_unhealthy,
            ),
        );
        limits
    }

    /// Checks that a limit is not zero, and that the degraded limit is not above the unhealthy one.
    fn in_order<T: Quantity>(&mut self, degraded: Option<&HealthLimit<T>>, unhealthy: &HealthLimit<T>) {
        for limit in degraded.into_iter().chain([unhealthy]) {
            if let (Some(at), Some(value)) = (limit.at, &limit.value)
                && *value == T::NOTHING
            {
                self.wrong(at, format!("`{}` is zero and would always apply; raise it", limit.name));
            }
        }
        let Some(degraded) = degraded else { return };
        if let (Some(first), Some(second)) = (&degraded.value, &unhealthy.value)
            && first > second
        {
            let (mild, grave) = (degraded.name, unhealthy.name);
            let compared = format!("`{mild}` is {} than `{grave}`", T::MORE);
            match (degraded.at, unhealthy.at) {
                (Some(at), _) => self.wrong(at, compared),
                (None, at) => {
                    self.wrong(at.unwrap_or(0), format!("{compared} by default; set `{mild}` too"));
                }
            }
        }
    }
}

/// Unit of a limit.
trait Quantity: PartialOrd {
    const NOTHING: Self;
    /// Comparative for the greater one of two.
    const MORE: &'static str;
}

impl Quantity for Duration {
    const NOTHING: Self = Self::ZERO;
    const MORE: &'static str = "longer";
}

impl Quantity for u64 {
    const NOTHING: Self = 0;
    const MORE: &'static str = "more";
}
