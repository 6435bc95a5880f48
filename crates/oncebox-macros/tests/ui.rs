//! What the compiler says to somebody who got the attribute wrong. `TRYBUILD=overwrite` writes the messages anew.

#[test]
fn mistakes_are_explained() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/right.rs");
    cases.compile_fail("tests/ui/wrong/*.rs");
}
