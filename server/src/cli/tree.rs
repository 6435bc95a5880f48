//! Tests of all commands: help texts, examples and command lines in the documentation.

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _, Parser as _};

use super::Cli;

/// Returns all visible commands with their full names.
fn commands() -> Vec<(String, Command)> {
    fn walk(name: &str, command: &Command, found: &mut Vec<(String, Command)>) {
        for inner in
            command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
        {
            let name = format!("{name} {}", inner.get_name());
            walk(&name, inner, found);
            found.push((name, inner.clone()));
        }
    }
    let mut found = Vec::new();
    let mut root = Cli::command();
    root.build();
    walk("oncebox", &root, &mut found);
    found
}

/// Splits a command line as a shell does, up to a pipe or redirect.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut begun) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(end), _) if c == end => quote = None,
            (None, '\'' | '"') => (quote, begun) = (Some(c), true),
            (None, '|' | '>' | '<' | ';' | '&') => break,
            (None, ' ') => {
                if begun || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            _ => word.push(c),
        }
    }
    if begun || !word.is_empty() {
        words.push(word);
    }
    words
}

/// Returns the command lines in the help of a command, without the explanations behind three spaces.
fn examples(help: &str) -> Vec<String> {
    let lines =
        help.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| line.starts_with("oncebox "));
    lines.map(|line| line.split_once("   ").map_or(line, |(example, _)| example).trim().to_owned()).collect()
}

#[test]
fn the_definition_is_valid() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_shows_an_example_of_itself_that_parses() {
    let commands = commands();
    assert!(commands.len() > 25, "{}", commands.len());
    for (name, command) in commands {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("Example"), "{name} has no example");
        let examples = examples(&help);
        assert!(examples.iter().any(|example| example.starts_with(&name)), "{name}: {examples:?}");
        for example in examples {
            let parsed = Cli::try_parse_from(words(&example));
            assert!(
                parsed.is_ok(),
                "{name}: {example:?}: {}",
                parsed.err().map(|error| error.to_string()).unwrap_or_default()
            );
        }
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!((1..=80).contains(&about.chars().count()), "{name}: {about}");
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let length = help.chars().count();
            assert!((1..=80).contains(&length), "{name}: {}: {length} characters: {help}", argument.get_id());
        }
    }
}

/// Collects the pages below a directory.
fn pages(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("a file").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// Returns the command lines on a page: those after `$ ` and those in backticks.
fn shown(page: &str) -> Vec<String> {
    let page = page.replace("\\\n", " ").replace("cargo run --release -- ", "oncebox ");
    let typed = page.lines().filter_map(|line| line.strip_prefix("$ "));
    let quoted = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    typed.chain(quoted).filter(|line| line.starts_with("oncebox ")).map(str::to_owned).collect()
}

/// Returns an unknown command or flag in a command line, if any.
fn unknown(line: &str) -> Option<String> {
    let mut command = Cli::command();
    command.build();
    let words = words(line);
    for (at, word) in words.iter().enumerate().skip(1) {
        if let Some(inner) = command.find_subcommand(word) {
            command = inner.clone();
        } else if at == 1 && !word.starts_with('-') {
            return Some(format!("unknown command {word:?}"));
        } else if let Some(flag) = word.strip_prefix("--").filter(|flag| !flag.is_empty()) {
            let name = flag.split('=').next().unwrap_or_default();
            if !command.get_arguments().any(|argument| argument.get_long() == Some(name)) {
                return Some(format!("{} has no flag --{name}", command.get_name()));
            }
        }
    }
    None
}

#[test]
fn pages_show_only_existing_commands_and_flags() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = vec![root.join("README.md"), root.join("SECURITY.md")];
    for dir in ["docs", "examples"] {
        pages(&root.join(dir), &mut found);
    }
    let (mut lines, mut wrong) = (0, Vec::new());
    for path in found {
        for line in shown(&std::fs::read_to_string(&path).expect("a page")) {
            lines += 1;
            wrong.extend(unknown(&line).map(|why| format!("{}: `{line}`: {why}", path.display())));
        }
    }
    assert!(lines > 40, "{lines} command lines");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(unknown("oncebox config check --secrets").as_deref(), Some("check has no flag --secrets"));
    assert_eq!(unknown("oncebox chek").as_deref(), Some("unknown command \"chek\""));
}

#[test]
fn command_lines_are_split_like_in_a_shell() {
    assert_eq!(words("a 'b c' \"\" d=e | f"), ["a", "b c", "", "d=e"]);
    assert_eq!(words("a > b"), ["a"]);
    assert_eq!(examples("Example:\n  oncebox a --b     what it is for\n\nExit"), ["oncebox a --b"]);
}
