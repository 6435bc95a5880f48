//! What is true of every command there is.

use clap::{Command, CommandFactory as _, Parser as _};

use super::Cli;

/// Every command that people see, with the names that lead to it.
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

/// The words of a command line, as a shell would split it, up to where it goes somewhere else.
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

/// The command lines in the help of a command. What is explained stands after two blanks.
fn examples(help: &str) -> Vec<String> {
    let lines =
        help.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| line.starts_with("oncebox "));
    lines.map(|line| line.split_once("   ").map_or(line, |(example, _)| example).trim().to_owned()).collect()
}

#[test]
fn the_definition_holds_together() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_shows_an_example_of_itself_that_parses() {
    let commands = commands();
    assert!(commands.len() > 25, "{}", commands.len());
    for (name, command) in commands {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("Example"), "{name} shows no example");
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
        assert!(command.get_about().is_some(), "{name} does not say what it does");
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            assert!(argument.get_help().is_some(), "{name}: {} is not explained", argument.get_id());
        }
    }
}

#[test]
fn a_shell_splits_as_it_does_here() {
    assert_eq!(words("a 'b c' \"\" d=e | f"), ["a", "b c", "", "d=e"]);
    assert_eq!(words("a > b"), ["a"]);
    assert_eq!(examples("Example:\n  oncebox a --b     what it is for\n\nExit"), ["oncebox a --b"]);
}
