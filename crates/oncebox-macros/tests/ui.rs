//! What the compiler says to somebody who got the attribute wrong. `TRYBUILD=overwrite` writes the messages anew.

/// Only what fails is tried here: nothing has to be built, only checked. What works is in the tests of `oncebox`.
#[test]
fn mistakes_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
