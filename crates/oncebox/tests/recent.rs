//! `Recent`: dedupe in the memory of the process, bounded and never forgetful.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncebox::{Admission, ErrorKind, Permit, Recent};
use oncebox_testkit::TestClock;
use proptest::prelude::*;

const MINUTE: Duration = Duration::from_mins(1);

fn recent(clock: &TestClock, capacity: usize) -> Recent {
    Recent::builder()
        .clock(clock.shared())
        .retention(10 * MINUTE)
        .capacity(capacity)
        .build()
        .expect("good settings")
}

fn first(recent: &Recent, key: &str) -> Permit {
    match recent.admit(key).expect("there is room") {
        Admission::First(permit) => permit,
        other => panic!("{key} is {other:?}"),
    }
}

#[test]
fn a_key_is_remembered_from_when_its_work_was_done() {
    let clock = TestClock::new();
    let recent = recent(&clock, 10);
    let permit = first(&recent, "1");
    clock.advance(20 * MINUTE);
    assert!(matches!(recent.admit("1").unwrap(), Admission::Busy), "work may take as long as it likes");
    permit.done();
    clock.advance(Duration::from_millis(599_999));
    assert!(matches!(recent.admit("1").unwrap(), Admission::Duplicate));
    clock.advance(Duration::from_millis(1));
    first(&recent, "1").done();
}

#[test]
fn what_fails_or_panics_is_free_again() {
    let recent = recent(&TestClock::new(), 10);
    drop(first(&recent, "1"));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _permit = first(&recent, "1");
        panic!("the work fails");
    }));
    assert!(panicked.is_err());
    first(&recent, "1").done();
    assert!(matches!(recent.admit("1").unwrap(), Admission::Duplicate));
}

// Deliveries without an id are not one delivery.
#[test]
fn a_blank_key_is_no_key() {
    let recent = recent(&TestClock::new(), 10).of("h");
    for blank in ["", " ", "\t\r\n", "\u{a0}"] {
        for _ in 0..2 {
            let error = recent.admit(blank).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::MissingKey, "{blank:?}");
        }
    }
    assert!(recent.is_empty(), "a blank key takes no room");
    first(&recent, " 1 ").done();
}

// DESIGN rule 9: full is an error that can be tried again, never "duplicate", and nothing is forgotten for it.
#[test]
fn full_is_not_duplicate_and_pushes_nothing_out() {
    let clock = TestClock::new();
    let recent = recent(&clock, 2);
    first(&recent, "1").done();
    let open = first(&recent, "2");
    let error = recent.admit("3").unwrap_err();
    assert!(error.kind() == ErrorKind::Full && error.is_retryable(), "{error:?}");
    assert!(matches!(recent.admit("1").unwrap(), Admission::Duplicate));
    assert!(matches!(recent.admit("2").unwrap(), Admission::Busy));
    drop(open);
    let third = first(&recent, "3");
    clock.advance(10 * MINUTE);
    first(&recent, "4").done();
    assert_eq!(recent.admit("5").unwrap_err().kind(), ErrorKind::Full, "what is open is never forgotten");
    third.done();
}

#[test]
fn handlers_do_not_share_keys() {
    let recent = recent(&TestClock::new(), 10);
    let (mail, charge) = (recent.of("mail"), recent.of("charge"));
    first(&mail, "1").done();
    assert!(matches!(mail.admit("1").unwrap(), Admission::Duplicate));
    first(&charge, "1").done();
    // No way to cut a key elsewhere makes two handlers meet.
    first(&recent.of("mai"), "l1").done();
    assert_eq!(recent.len(), 3);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for (builder, name) in [
        (Recent::builder().capacity(0), "`capacity`"),
        (Recent::builder().retention(Duration::ZERO), "`retention`"),
    ] {
        let error = builder.build().unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidConfig && error.what().contains(name), "{error}");
    }
}

#[test]
fn of_many_threads_one_does_the_work() {
    let recent = Recent::builder().capacity(100).build().unwrap();
    let done: Arc<Vec<AtomicUsize>> = Arc::new((0..20).map(|_| AtomicUsize::new(0)).collect());
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let (recent, done) = (recent.clone(), Arc::clone(&done));
            std::thread::spawn(move || {
                for round in 0..200 {
                    let key: usize = (round * 7 + thread) % 20;
                    if let Admission::First(permit) = recent.admit(key.to_string()).unwrap() {
                        // Every other one fails at first.
                        if round % 2 == 0 {
                            done[key].fetch_add(1, Ordering::Relaxed);
                            permit.done();
                        }
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{done:?}");
}

#[derive(Clone, Debug)]
enum RecentStep {
    Admit(u8),
    Done(u8),
    Fail(u8),
    Pass(u8),
}

fn steps() -> impl Strategy<Value = Vec<RecentStep>> {
    let step = prop_oneof![
        4 => (0..8_u8).prop_map(RecentStep::Admit),
        3 => (0..8_u8).prop_map(RecentStep::Done),
        1 => (0..8_u8).prop_map(RecentStep::Fail),
        1 => (0..8_u8).prop_map(RecentStep::Pass),
    ];
    proptest::collection::vec(step, 0..200)
}

/// State of each key: in work, or done at a minute.
#[derive(Clone, Copy)]
enum Model {
    Open,
    Done(u64),
}

proptest! {
    #[test]
    fn does_what_a_simple_model_does(steps in steps(), capacity in 1..6_usize) {
        let clock = TestClock::new();
        let recent = recent(&clock, capacity);
        let (mut model, mut permits, mut now) = (HashMap::new(), HashMap::new(), 0);
        for step in steps {
            model.retain(|_, slot| !matches!(slot, Model::Done(at) if *at + 10 <= now));
            match step {
                RecentStep::Admit(key) => match (recent.admit([key]), model.get(&key)) {
                    (Ok(Admission::Duplicate), Some(Model::Done(_))) | (Ok(Admission::Busy), Some(Model::Open)) => {}
                    (Err(error), None) => {
                        prop_assert_eq!(error.kind(), ErrorKind::Full);
                        prop_assert!(model.len() >= capacity);
                    }
                    (Ok(Admission::First(permit)), None) => {
                        prop_assert!(model.len() < capacity);
                        model.insert(key, Model::Open);
                        permits.insert(key, permit);
                    }
                    (answer, _) => prop_assert!(false, "{key} is {answer:?}"),
                },
                RecentStep::Done(key) => {
                    if let Some(permit) = permits.remove(&key) {
                        Permit::done(permit);
                        model.insert(key, Model::Done(now));
                    }
                }
                RecentStep::Fail(key) => {
                    if permits.remove(&key).is_some() {
                        model.remove(&key);
                    }
                }
                RecentStep::Pass(minutes) => {
                    now += u64::from(minutes);
                    clock.advance(u32::from(minutes) * MINUTE);
                }
            }
        }
    }
}
