//! Mutates a corpus: fast enough for every test run, reproducible by seed, and on stable Rust. Tests: tests/.
//!
//! An input that once broke a reader becomes a file in `corpus/`, and is read first from then on.

use std::path::Path;

/// Mutations per reader.
pub const MADE: usize = 20_000;

/// Calls a reader with every file of a corpus, and with `made` mutations of them.
///
/// # Panics
///
/// If the corpus cannot be read or is empty. Prints the input and continues any panic of the reader.
pub fn feed(corpus: &Path, seed: u64, made: usize, mut read: impl FnMut(&[u8])) {
    let mut kept: Vec<Vec<u8>> = std::fs::read_dir(corpus)
        .and_then(|entries| entries.map(|entry| std::fs::read(entry?.path())).collect())
        .unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    assert!(!kept.is_empty(), "{} is empty", corpus.display());
    kept.sort();
    let mut rng = fastrand::Rng::with_seed(seed);
    for input in &kept {
        watched(input, &mut read);
    }
    for _ in 0..made {
        let mut input = kept[rng.usize(0..kept.len())].clone();
        for _ in 0..rng.usize(1..6) {
            mutate(&mut input, &kept, &mut rng);
        }
        watched(&input, &mut read);
    }
}

/// Prints the input if the reader panics: add it to the corpus.
fn watched(input: &[u8], read: &mut impl FnMut(&[u8])) {
    struct Print<'a>(&'a [u8]);
    impl Drop for Print<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the input was {:?}", String::from_utf8_lossy(self.0));
            }
        }
    }
    let print = Print(input);
    read(input);
    std::mem::forget(print);
}

/// Bytes that break readers.
const NASTY: [&[u8]; 14] = [
    b"\0",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"%00",
    b"%",
    b"\xff",
    b"\xc3\x28",
    b"\xef\xbb\xbf",
    b"{",
    b"[",
    b"-1e999",
    b"\r\n",
];

fn mutate(input: &mut Vec<u8>, kept: &[Vec<u8>], rng: &mut fastrand::Rng) {
    let at = rng.usize(0..=input.len());
    match rng.u32(0..7) {
        0 if at < input.len() => input[at] ^= 1 << rng.u32(0..8),
        1 if at < input.len() => _ = input.remove(at),
        2 => input.insert(at, rng.u8(..)),
        3 => input.truncate(at),
        4 => _ = input.splice(at..at, NASTY[rng.usize(0..NASTY.len())].iter().copied()),
        5 => {
            // The end of another input.
            let other = &kept[rng.usize(0..kept.len())];
            input.truncate(at);
            input.extend_from_slice(&other[rng.usize(0..=other.len())..]);
        }
        _ => {
            // A repeated part.
            let to = rng.usize(at..=input.len());
            let part = input[at..to].to_vec();
            input.splice(at..at, part);
            input.truncate(1 << 16);
        }
    }
}
