//! Random operations, compared with a model that is too simple to be wrong. Tests: below.
//!
//! Every sequence of operations has its own inbox and seed. A failing sequence is shortened while it still fails, and the rest is
//! printed with the seed. `ONCEBOX_SEED=<seed>` runs that sequence alone, and `ONCEBOX_SEQUENCES=<n>` runs `n`, from that seed or
//! from 0.

mod compare;
mod inbox_model;
mod run;
mod step;

use std::ops::Range;

use proptest::strategy::{Strategy as _, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::{Harness, StoreUnderTest};
use run::ModelRun;
use step::ModelStep;

/// Maximum runs of a failing sequence to shorten it.
const SHRINKS: usize = 400;

/// A step that can be simplified.
type StepTree = Box<dyn ValueTree<Value = ModelStep>>;

// FAULTS A4, A10, B3, B4, B5, B7, C3, D2, H1, H2, J1, J2, J3, in any order.
pub async fn random_operations_do_what_the_model_does<S: StoreUnderTest>(h: &Harness<S>) {
    for seed in seeds(h.sequences, |name| std::env::var(name).ok()) {
        let _names = NameIfPanicking(seed);
        let mut steps = sequence(seed, h.steps);
        let Err(failure) = run(h, &format!("model-{seed}"), &steps).await else { continue };
        let all = steps.len();
        let ModelFailure { what, log, .. } = Shrinking { h, seed, runs: 0, failure }.shrink(&mut steps).await;
        panic!(
            "sequence {seed}: {what}\n{} of its {all} operations are enough for that:\n  {}\n`ONCEBOX_SEED={seed}` runs it again",
            steps.len(),
            log.join("\n  "),
        );
    }
}

/// Failure of a sequence, and the steps until then.
struct ModelFailure {
    what: String,
    /// Number of steps, including the failed one.
    made: usize,
    log: Vec<String>,
}

/// Returns the sequences to run.
fn seeds(default: u64, variable: impl Fn(&str) -> Option<String>) -> Range<u64> {
    let number = |name: &str| {
        variable(name)
            .map(|text| text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text} is no number")))
    };
    let (seed, sequences) = (number("ONCEBOX_SEED"), number("ONCEBOX_SEQUENCES"));
    let first = seed.unwrap_or(0);
    let count = sequences.unwrap_or(if seed.is_some() { 1 } else { default });
    first..first.saturating_add(count)
}

/// Returns the sequence of a seed.
fn sequence(seed: u64, max: usize) -> Vec<StepTree> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let count = (max / 2..=max).new_tree(&mut runner).expect("a number").current();
    let step = step::any().boxed();
    (0..count).map(|_| step.new_tree(&mut runner).expect("nothing is filtered out")).collect()
}

async fn run<S: StoreUnderTest>(h: &Harness<S>, inbox: &str, steps: &[StepTree]) -> Result<(), ModelFailure> {
    let mut run = ModelRun::new(h, inbox);
    let ended = run.all(steps.iter().map(ValueTree::current)).await;
    // The next sequence must not start in the past of this one.
    h.advance(run.turned_back());
    ended.map_err(|what| ModelFailure { what, made: run.made(), log: run.into_log() })
}

/// Search for a short sequence that fails.
struct Shrinking<'a, S> {
    h: &'a Harness<S>,
    seed: u64,
    runs: usize,
    /// Failure of the shortest sequence so far.
    failure: ModelFailure,
}

impl<S: StoreUnderTest> Shrinking<'_, S> {
    /// Removes needless steps, then simplifies the rest.
    async fn shrink(mut self, steps: &mut Vec<StepTree>) -> ModelFailure {
        steps.truncate(self.failure.made);
        for place in (0..steps.len()).rev() {
            let step = steps.remove(place);
            if !self.fails(steps).await {
                steps.insert(place, step);
            }
        }
        for place in 0..steps.len() {
            let mut simpler = steps[place].simplify();
            while simpler {
                simpler =
                    if self.fails(steps).await { steps[place].simplify() } else { steps[place].complicate() };
            }
        }
        self.failure
    }

    async fn fails(&mut self, steps: &[StepTree]) -> bool {
        if self.runs == SHRINKS {
            return false;
        }
        self.runs += 1;
        match run(self.h, &format!("model-{}-{}", self.seed, self.runs), steps).await {
            Ok(()) => false,
            Err(failure) => {
                self.failure = failure;
                true
            }
        }
    }
}

/// Prints the seed if a store panics.
struct NameIfPanicking(u64);

impl Drop for NameIfPanicking {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in sequence {0}: `ONCEBOX_SEED={0}` runs it again", self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use oncebox::Memory;

    use super::*;
    use crate::TestClock;

    #[test]
    fn the_environment_chooses_the_sequences() {
        let given = |seed: Option<&'static str>, sequences: Option<&'static str>| {
            seeds(256, |name| if name == "ONCEBOX_SEED" { seed } else { sequences }.map(Into::into))
        };
        assert_eq!(given(None, None), 0..256);
        assert_eq!(given(Some("7"), None), 7..8);
        assert_eq!(given(None, Some("9")), 0..9);
        assert_eq!(given(Some("7"), Some("9")), 7..16);
    }

    fn steps(seed: u64, max: usize) -> Vec<ModelStep> {
        sequence(seed, max).iter().map(ValueTree::current).collect()
    }

    #[test]
    fn a_seed_gives_the_same_sequence_every_time() {
        let text = |seed| format!("{:?}", steps(seed, 40));
        assert_eq!(text(3), text(3));
        assert_ne!(text(3), text(4));
    }

    /// The sequences of one test run contain every kind of operation, and every way to lose a response.
    #[test]
    fn every_operation_comes_up() {
        let all: Vec<Vec<ModelStep>> = (0..256).map(|seed| steps(seed, 12)).collect();
        let all = format!("{all:?}");
        for word in [
            "Accept",
            "Claim",
            "Settle",
            "Complete",
            "Renew",
            "Rescue",
            "Advance",
            "TurnBack",
            "Operate",
            "Pause",
            "Sweep",
            "Before",
            "After",
            "Retry",
            "Discard",
            "Replay",
            "Unblock",
            "Block,",
            "Skip,",
            "Park,",
            "suspect: true",
            "pause: true",
            "pause: false",
        ] {
            assert!(all.contains(word), "{word}");
        }
    }

    #[tokio::test]
    async fn a_failing_sequence_is_made_as_short_as_it_can_be() {
        let clock = TestClock::new();
        // The store is full, and the model does not know its capacity.
        let h = Harness::new(Memory::with_clock(clock.shared()).capacity(1), clock);
        let mut steps = sequence(0, 40);
        let Err(failure) = run(&h, "full", &steps).await else { panic!("two messages have no room") };
        let failure = Shrinking { h: &h, seed: 0, runs: 0, failure }.shrink(&mut steps).await;
        assert_eq!(steps.len(), 1, "{:?}", failure.log);
        assert_eq!(failure.log.len(), 1, "{:?}", failure.log);
    }
}
