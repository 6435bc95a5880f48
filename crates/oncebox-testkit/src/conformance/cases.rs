//! The macros that turn the lists of cases into tests.

/// Runs the conformance suite on a store: `store_conformance!(name, setup)` makes a module `name` with one test for each rule. Name
/// the tiers of a store that does not have all of them. See [`conformance`](crate::conformance).
#[macro_export]
macro_rules! store_conformance {
    ($name:ident, $setup:expr) => {
        $crate::store_conformance!($name, $setup, tiers: store inspect operate transactional share);
    };
    ($name:ident, $setup:expr, tiers: $($tier:ident)+) => {
        mod $name {
            use super::*;

            $($crate::store_conformance!(@tier $tier $setup);)+
        }
    };
    (@tier store $setup:expr) => { mod store { use super::*; $crate::store_tier!($setup); } };
    (@tier inspect $setup:expr) => { mod inspect { use super::*; $crate::inspect_tier!($setup); } };
    (@tier operate $setup:expr) => { mod operate { use super::*; $crate::operate_tier!($setup); } };
    (@tier transactional $setup:expr) => { mod transactional { use super::*; $crate::transactional_tier!($setup); } };
    (@tier share $setup:expr) => { mod share { use super::*; $crate::share_tier!($setup); } };
}

/// Makes a test of each case of a list.
#[doc(hidden)]
#[macro_export]
macro_rules! tier_cases {
    ($setup:expr; $($group:ident { $($case:ident,)* })*) => {
        $(
            mod $group {
                use super::*;

                $(
                    #[test]
                    fn $case() {
                        $crate::conformance::run(stringify!($case), $setup, $crate::conformance::$group::$case);
                    }
                )*
            }
        )*
    };
}
