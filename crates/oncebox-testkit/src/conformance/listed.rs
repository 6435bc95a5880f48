//! Whether every case is in a list.

/// A case that is not in the list would never run.
#[test]
fn every_case_is_listed() {
    let lists = [include_str!("cases.rs"), include_str!("operator_cases.rs")].concat();
    let list: String = lists.split_whitespace().collect();
    let groups = [
        ("accept", include_str!("accept.rs")),
        ("claim", include_str!("claim.rs")),
        ("settle", include_str!("settle.rs")),
        ("renew", include_str!("renew.rs")),
        ("rescue", include_str!("rescue.rs")),
        ("sweep", include_str!("sweep.rs")),
        ("windows", include_str!("windows.rs")),
        ("register", include_str!("register.rs")),
        ("orphans", include_str!("orphans.rs")),
        ("backlog", include_str!("backlog.rs")),
        ("backfill", include_str!("backfill.rs")),
        ("mark", include_str!("mark.rs")),
        ("result", include_str!("result.rs")),
        ("inline", include_str!("inline.rs")),
        ("share", include_str!("share.rs")),
        ("admin", include_str!("admin.rs")),
        ("history", include_str!("history.rs")),
        ("list", include_str!("list.rs")),
        ("operations", include_str!("operations.rs")),
        ("erase", include_str!("erase.rs")),
        ("order", include_str!("order.rs")),
        ("line", include_str!("line.rs")),
        ("alias", include_str!("alias.rs")),
        ("rename", include_str!("rename.rs")),
        ("tenant", include_str!("tenant.rs")),
        ("edges", include_str!("edges.rs")),
        ("concurrency", include_str!("concurrency.rs")),
        ("unknown", include_str!("unknown.rs")),
        ("model", include_str!("model.rs")),
    ];
    for (group, source) in groups {
        // A whole word: `inline` ends as `line` does.
        let opening = format!("{group}{{");
        let mut found = list.match_indices(&opening).map(|(at, _)| at);
        let start = found.find(|at| !list[..*at].ends_with(|before: char| before.is_alphabetic()));
        let start = start.unwrap_or_else(|| panic!("{group} is not listed"));
        let end = start + list[start..].find('}').expect("a group ends");
        let listed: Vec<&str> = list[start + group.len() + 1..end].split_terminator(',').collect();
        let written: Vec<&str> = source
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn "))
            .filter_map(|line| line.split('<').next())
            .collect();
        assert_eq!(listed, written, "{group}");
    }
}
