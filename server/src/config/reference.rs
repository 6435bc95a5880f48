//! The schema of the configuration, and the page of the documentation that is made of it.

use std::fmt::Write as _;

use schemars::{Schema, schema_for};
use serde_json::{Map, Value};

use super::model::ConfigFile;

/// The JSON schema of the configuration.
pub(crate) fn schema() -> Schema {
    schema_for!(ConfigFile)
}

/// The page `docs/config.md`: every setting, from the same comments that the schema has.
pub(crate) fn reference() -> String {
    let schema = schema().to_value();
    let definitions = schema.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut page = String::from(
        "# The configuration\n\nEvery setting of `oncebox.toml`, made from the program by `oncebox config reference`. [The \
         sidecar](guides/sidecar.md)\nsays what they are for; `oncebox config example` prints a file with all of them, `oncebox \
         config check` checks\nyours, and `oncebox config schema` is for your editor.\n\nTime spans are written like `30s`, `5m`, \
         `12h` or `7d`. A secret is named and never written down: `env:NAME` for an\nenvironment variable, `file:/path` for a \
         file that holds it.\n",
    );
    table(&mut page, "Located the top", &schema, &definitions);
    for (title, name) in [
        ("`tls`", "TlsTable"),
        ("[store.NAME]", "StoreTable"),
        ("[store.NAME.seal]", "SealTable"),
        ("[api]", "ApiTable"),
        ("[api.token.NAME]", "TokenTable"),
        ("[health]", "HealthTable"),
        ("[inbox.NAME]", "InboxTable"),
        ("[inbox.NAME.http.NAME]", "HttpTable"),
        ("[inbox.NAME.rabbitmq.NAME]", "RabbitmqTable"),
        ("[inbox.NAME.handler.KEY]", "HandlerTable"),
        ("`key` as a table", "KeyTable"),
        ("`retry` as a table", "RetryTable"),
        ("`rate` and `quota` as a table", "RateTable"),
        ("`breaker`", "BreakerTable"),
    ] {
        let title = if title.starts_with('[') { format!("`{title}`") } else { title.to_owned() };
        if let Some(schema) = definitions.get(name) {
            table(&mut page, &title, schema, &definitions);
        }
    }
    page
}

fn table(page: &mut String, title: &str, schema: &Value, definitions: &Map<String, Value>) {
    // Writing to a string cannot fail.
    let _ =
        write!(page, "\n## {title}\n\n{}\n\n| setting | value | meaning |\n|---|---|---|\n", text(schema));
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, setting) in schema["properties"].as_object().into_iter().flatten() {
        let needed = if required.contains(&name.as_str()) { " (needed)" } else { "" };
        let value = cell(&value(setting, definitions));
        let _ = writeln!(page, "| `{name}`{needed} | {value} | {} |", cell(&text(setting)));
    }
}

/// What a comment says, on one line.
fn text(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// What a setting may be.
fn value(schema: &Value, definitions: &Map<String, Value>) -> String {
    if let Some(title) = schema["title"].as_str() {
        return title.to_owned();
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return match definitions.get(name) {
            Some(found) if found["properties"].is_object() => "a table".into(),
            Some(found) => value(found, definitions),
            None => String::new(),
        };
    }
    for several in ["anyOf", "oneOf"] {
        if let Some(all) = schema[several].as_array() {
            let mut words: Vec<String> = Vec::new();
            for word in all.iter().map(|one| value(one, definitions)).filter(|word| !word.is_empty()) {
                if !words.contains(&word) {
                    words.push(word);
                }
            }
            return words.join(" or ");
        }
    }
    if let Some(words) = schema["enum"].as_array() {
        return words
            .iter()
            .filter(|word| !word.is_null())
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    if let Some(word) = schema.get("const") {
        return format!("`{word}`");
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().find_map(|kind| kind.as_str().filter(|kind| *kind != "null")),
        kind => kind.as_str(),
    };
    match kind {
        Some("string") => "text".into(),
        Some("integer") => "a number".into(),
        Some("boolean") => "`true` or `false`".into(),
        Some("array") => format!("a list of {}", value(&schema["items"], definitions)),
        Some("object") if schema["additionalProperties"].is_object() => "tables by name".into(),
        Some("object") => "a table".into(),
        _ => String::new(),
    }
}
