//! Check that every case is in the list of its tier.

use std::collections::BTreeMap;

/// The list of each tier, by the bound of its cases.
const LISTS: [(&str, &str); 5] = [
    ("StoreTier", include_str!("store_cases.rs")),
    ("InspectTier", include_str!("inspect_cases.rs")),
    ("OperateTier", include_str!("operate_cases.rs")),
    ("TransactionalTier", include_str!("transactional_cases.rs")),
    ("ShareTier", include_str!("transactional_cases.rs")),
];

/// A case that is not in a list would never run. A case in the list of a higher tier would be missing in the suite of its own.
#[test]
fn every_case_is_listed_in_its_tier() {
    let files =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/conformance")).expect("the cases");
    let mut cases = 0;
    for file in files {
        let path = file.expect("a file").path();
        let source = std::fs::read_to_string(&path).unwrap_or_default();
        let group = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let mut written: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for line in source.lines().filter_map(|line| line.strip_prefix("pub async fn ")) {
            let (case, bound) = line.split_once("<S: ").unwrap_or_else(|| panic!("{line} has no tier"));
            let tier = bound.split('>').next().expect("a bound");
            written.entry(tier).or_default().push(case);
        }
        for (tier, written) in written {
            cases += written.len();
            assert_eq!(listed(tier, group), written, "{group}, {tier}");
        }
    }
    assert!(cases > 390, "{cases} cases");
}

/// Returns the listed cases of a group and tier.
fn listed(tier: &str, group: &str) -> Vec<&'static str> {
    let (_, list) =
        LISTS.iter().find(|(name, _)| *name == tier).unwrap_or_else(|| panic!("{tier} has no list"));
    let name = tier.trim_end_matches("Tier").to_lowercase();
    let start =
        list.find(&format!("macro_rules! {name}_tier")).unwrap_or_else(|| panic!("{name} has no list"));
    let list = &list[start..];
    let list = &list[..list.find("\n}\n").expect("a macro ends")];
    let opening = format!(" {group} {{");
    let start = list.find(&opening).unwrap_or_else(|| panic!("{group} is not in the list of {tier}"));
    let cases = &list[start + opening.len()..];
    let end = cases.find('}').expect("a group ends");
    cases[..end].split(',').map(str::trim).filter(|case| !case.is_empty()).collect()
}
