use super::*;

fn id(number: u16) -> Id {
    let mut id = [0; 32];
    id[..2].copy_from_slice(&number.to_le_bytes());
    id
}

fn second(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

// A call that finds a million old keys must not remove them all: somebody waits for it.
#[test]
fn one_call_removes_a_few_of_many_old_keys() {
    let mut keys = Keys::new(1_000);
    for number in 0..1_000 {
        assert_eq!(keys.admit(id(number), second(0)), Found::Free);
        keys.done(id(number), second(10));
    }
    assert_eq!(keys.admit(id(5_000), second(20)), Found::Free);
    assert_eq!(keys.len(), 1_000 - MAX_EXPIRED_PER_CALL + 1);
    // What is past its time counts for nothing meanwhile.
    assert_eq!(keys.admit(id(999), second(20)), Found::Free);
    assert_eq!(keys.admit(id(999), second(20)), Found::Open);
}

#[test]
fn a_key_that_was_given_out_again_outlives_its_first_time() {
    let mut keys = Keys::new(2);
    keys.admit(id(1), second(0));
    keys.done(id(1), second(10));
    keys.admit(id(2), second(1));
    keys.done(id(2), second(11));
    // Both are past their time, so both leave, and one is given out again.
    assert_eq!(keys.admit(id(2), second(20)), Found::Free);
    keys.done(id(2), second(30));
    assert_eq!(keys.admit(id(2), second(29)), Found::Done);
    assert_eq!(keys.admit(id(2), second(30)), Found::Free);
}
