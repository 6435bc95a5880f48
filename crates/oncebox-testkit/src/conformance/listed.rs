//! Check that every case is in a list.

/// A case that is not in the list would never run.
#[test]
fn every_case_is_listed() {
    let lists = [include_str!("cases.rs"), include_str!("operator_cases.rs")].concat();
    let list: String = lists.split_whitespace().collect();
    let files =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/conformance")).expect("the cases");
    let mut groups = 0;
    for file in files {
        let path = file.expect("a file").path();
        let source = std::fs::read_to_string(&path).unwrap_or_default();
        let group = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let written: Vec<&str> = source
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn "))
            .filter_map(|line| line.split('<').next())
            .collect();
        if written.is_empty() {
            continue;
        }
        groups += 1;
        // A whole word: `inline` ends like `line`.
        let opening = format!("{group}{{");
        let mut found = list.match_indices(&opening).map(|(at, _)| at);
        let start = found.find(|at| !list[..*at].ends_with(|before: char| before.is_alphabetic()));
        let start = start.unwrap_or_else(|| panic!("{group} is not listed"));
        let end = start + list[start..].find('}').expect("a group ends");
        let listed: Vec<&str> = list[start + group.len() + 1..end].split_terminator(',').collect();
        assert_eq!(listed, written, "{group}");
    }
    assert!(groups > 30, "{groups} groups");
}
