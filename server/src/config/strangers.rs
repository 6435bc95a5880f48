//! No file takes the program down: what is wrong with it is said, with the line.

use std::path::Path;

use oncebox_strangers::{MADE, feed};

use super::{Invalid, Secrets, parse};

#[test]
fn a_configuration_is_read_or_explained() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../chaos/strangers/corpus/config");
    let (mut read, mut explained) = (0, 0);
    feed(&corpus, 8, MADE / 10, |input| {
        let text = String::from_utf8_lossy(input).into_owned();
        match parse(&text, Secrets::Assume) {
            Ok(_) => read += 1,
            Err(problems) => {
                assert!(!problems.is_empty(), "refused without a reason");
                let lines = text.lines().count().max(1) + 1;
                let said = Invalid { path: "oncebox.toml".into(), text, problems }.to_string();
                explained += 1;
                for line in said.lines().filter_map(|line| line.strip_prefix("oncebox.toml:")) {
                    let number = line.split(':').next().and_then(|number| number.parse::<usize>().ok());
                    assert!(number.is_some_and(|number| number <= lines), "{said}");
                }
            }
        }
    });
    assert!(read > 0 && explained > 0, "{read} were read, {explained} explained");
}
