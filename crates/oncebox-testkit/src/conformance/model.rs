//! Random operations, compared with a model that is too simple to be wrong.
//!
//! Every sequence of operations has its own inbox and its own seed. A sequence that fails is made shorter as long as it
//! still fails; what is left is printed, with the seed. `ONCEBOX_SEED=<seed>` runs that sequence alone,
//! `ONCEBOX_SEQUENCES=<n>` runs as many, from that seed or from 0.

mod books;
mod run;
mod step;

use std::ops::Range;

use proptest::collection::vec;
use proptest::strategy::{Strategy as _, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::{Harness, StoreUnderTest};
use run::Run;
use step::Step;

/// How often a failing sequence is run again to make it shorter.
const SHRINKS: usize = 400;

// FAULTS A4, A10, B3, B4, B5, B7, C3, D2, H1, H2, J1, J2, J3, in any order.
pub async fn random_operations_do_what_the_model_does<S: StoreUnderTest>(h: &Harness<S>) {
    for seed in seeds(h.sequences, |name| std::env::var(name).ok()) {
        let _names = NameIfPanicking(seed);
        let mut tree = sequence(seed, h.steps);
        let steps = tree.current();
        let Err(failure) = run(h, &format!("model-{seed}"), &steps).await else { continue };
        let (failure, left) = shrink(h, seed, &mut tree, failure).await;
        panic!(
            "sequence {seed}: {}\n{} of its {} operations are enough for that:\n  {}\n`ONCEBOX_SEED={seed}` runs it again",
            failure.what,
            left,
            steps.len(),
            failure.log.join("\n  "),
        );
    }
}

/// What went wrong, and what was done until then.
struct Failure {
    what: String,
    log: Vec<String>,
}

/// The sequences to run.
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

/// The sequence of a seed, which can be made shorter.
fn sequence(seed: u64, steps: usize) -> impl ValueTree<Value = Vec<Step>> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    vec(step::any(), steps / 2..=steps).new_tree(&mut runner).expect("nothing is filtered out")
}

async fn run<S: StoreUnderTest>(h: &Harness<S>, inbox: &str, steps: &[Step]) -> Result<(), Failure> {
    let mut run = Run::new(h, inbox);
    let ended = run.all(steps).await;
    // The next sequence must not begin in the past of this one.
    h.advance(run.turned_back());
    ended.map_err(|what| Failure { what, log: run.into_log() })
}

/// Makes a failing sequence shorter while it fails; returns the last failure and how many operations it took.
async fn shrink<S: StoreUnderTest>(
    h: &Harness<S>,
    seed: u64,
    tree: &mut impl ValueTree<Value = Vec<Step>>,
    failure: Failure,
) -> (Failure, usize) {
    let mut least = (failure, tree.current().len());
    let mut smaller = tree.simplify();
    for turn in 0..SHRINKS {
        if !smaller {
            break;
        }
        let steps = tree.current();
        smaller = match run(h, &format!("model-{seed}-{turn}"), &steps).await {
            Ok(()) => tree.complicate(),
            Err(failure) => {
                least = (failure, steps.len());
                tree.simplify()
            }
        };
    }
    least
}

/// A store that panics says nothing of the sequence: this does.
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

    #[test]
    fn a_seed_gives_the_same_sequence_every_time() {
        let steps = |seed| format!("{:?}", sequence(seed, 40).current());
        assert_eq!(steps(3), steps(3));
        assert_ne!(steps(3), steps(4));
    }

    /// Every kind of operation, and every way to lose an answer, comes up in the sequences of one test run.
    #[test]
    fn every_operation_comes_up() {
        let all: Vec<Vec<Step>> = (0..256).map(|seed| sequence(seed, 16).current()).collect();
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
        // A store that forgets what it was told, as the model sees it: its room is used up.
        let h = Harness::new(Memory::with_clock(clock.shared()).capacity(0), clock);
        let mut tree = sequence(0, 40);
        let Err(failure) = run(&h, "full", &tree.current()).await else { panic!("nothing can be accepted") };
        let (failure, left) = shrink(&h, 0, &mut tree, failure).await;
        assert_eq!((left, failure.log.len()), (1, 1), "{:?}", failure.log);
    }
}
