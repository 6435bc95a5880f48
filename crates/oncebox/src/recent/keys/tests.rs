//! Tests of the keys of `Recent`: bounded removal and expiry.

use super::*;

fn id(number: u16) -> KeyDigest {
    let mut id = [0; 32];
    id[..2].copy_from_slice(&number.to_le_bytes());
    id
}

fn second(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

// A call that finds a million old keys must not remove them all, because its caller waits.
#[test]
fn one_call_removes_a_few_of_many_old_keys() {
    let mut keys = RecentKeys::new(1_000);
    for number in 0..1_000 {
        assert_eq!(keys.admit(id(number), second(0)), KeyAdmission::Free);
        keys.done(id(number), second(10));
    }
    assert_eq!(keys.admit(id(5_000), second(20)), KeyAdmission::Free);
    assert_eq!(keys.len(), 1_000 - MAX_EXPIRED_PER_CALL + 1);
    // An expired key is free before its removal.
    assert_eq!(keys.admit(id(999), second(20)), KeyAdmission::Free);
    assert_eq!(keys.admit(id(999), second(20)), KeyAdmission::Open);
}

#[test]
fn a_key_that_was_given_out_again_outlives_its_first_time() {
    let mut keys = RecentKeys::new(2);
    keys.admit(id(1), second(0));
    keys.done(id(1), second(10));
    keys.admit(id(2), second(1));
    keys.done(id(2), second(11));
    // Both are past their time, so both leave, and one is given out again.
    assert_eq!(keys.admit(id(2), second(20)), KeyAdmission::Free);
    keys.done(id(2), second(30));
    assert_eq!(keys.admit(id(2), second(29)), KeyAdmission::Done);
    assert_eq!(keys.admit(id(2), second(30)), KeyAdmission::Free);
}
