//! "Did you mean": the known word that is most similar to an unknown one.

/// Returns the most similar word of `known`, if it is similar enough.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|one| (distance(word, one), *one)).min()?;
    // A third of the letters may differ.
    (near.0 <= near.1.len().div_ceil(3)).then_some(near.1)
}

/// Returns a sentence with the most similar word, or with all words.
pub(crate) fn advice(word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are `{}`", known.join("`, `")),
    }
}

/// Returns the number of letters to add, remove or change to turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = ["key", "timeout", "concurrency", "share_commit"];
        assert_eq!(nearest("time_out", &known), Some("timeout"));
        assert_eq!(nearest("concurency", &known), Some("concurrency"));
        assert_eq!(nearest("sharecommit", &known), Some("share_commit"));
        assert_eq!(nearest("priority", &known), None);
        assert_eq!(advice("priority", &["a", "b"]), "there are `a`, `b`");
    }

    #[test]
    fn distances_are_counted_in_letters() {
        for (a, b, expected) in
            [("", "", 0), ("", "ab", 2), ("key", "key", 0), ("kye", "key", 2), ("ke", "key", 1)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
    }
}
