//! The part of JSON Schema that our schema uses. Other keywords are an error.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Panics if a value does not match.
pub(crate) fn check(schema: &Value, value: &Value) {
    if let Err(why) = fits(schema, schema, value, "") {
        panic!("{why}");
    }
}

/// Returns the name of every setting.
pub(crate) fn names(schema: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let definitions = schema["$defs"].as_object().into_iter().flat_map(Map::values);
    for one in definitions.chain([schema]) {
        let properties = one["properties"].as_object().into_iter().flat_map(Map::keys);
        names.extend(properties.cloned());
    }
    names
}

const KNOWN: &[&str] = &[
    "$schema",
    "$defs",
    "$ref",
    "title",
    "description",
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "default",
];

fn fits(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let Some(rules) = schema.as_object() else {
        return if schema == &Value::Bool(false) { Err(format!("{at}: not allowed")) } else { Ok(()) };
    };
    if let Some(unknown) = rules.keys().find(|rule| !KNOWN.contains(&rule.as_str())) {
        return Err(format!("{at}: the rule {unknown} is not known"));
    }
    if let Some(path) = rules.get("$ref").and_then(Value::as_str) {
        let target = root.pointer(path.trim_start_matches('#')).ok_or(format!("{path} leads nowhere"))?;
        fits(root, target, value, at)?;
    }
    of_type(rules, value, at)?;
    words(rules, value, at)?;
    for several in ["anyOf", "oneOf"] {
        if let Some(all) = rules.get(several).and_then(Value::as_array) {
            let tried: Vec<_> = all.iter().map(|one| fits(root, one, value, at)).collect();
            if tried.iter().all(Result::is_err) {
                return Err(format!("{at}: fits nothing of {tried:?}"));
            }
        }
    }
    if let (Some(items), Some(list)) = (rules.get("items"), value.as_array()) {
        list.iter().try_for_each(|item| fits(root, items, item, at))?;
    }
    object(root, rules, value, at)
}

fn object(root: &Value, rules: &Map<String, Value>, value: &Value, at: &str) -> Result<(), String> {
    let Some(object) = value.as_object() else { return Ok(()) };
    for needed in rules.get("required").and_then(Value::as_array).into_iter().flatten() {
        if !object.contains_key(needed.as_str().unwrap_or_default()) {
            return Err(format!("{at}: {needed} is missing"));
        }
    }
    let properties = rules.get("properties").and_then(Value::as_object);
    for (name, value) in object {
        let at = format!("{at}/{name}");
        match (properties.and_then(|all| all.get(name)), rules.get("additionalProperties")) {
            (Some(schema), _) | (None, Some(schema)) => fits(root, schema, value, &at)?,
            (None, None) => {}
        }
    }
    Ok(())
}

fn of_type(rules: &Map<String, Value>, value: &Value, at: &str) -> Result<(), String> {
    let kinds: Vec<&str> = match rules.get("type") {
        None => return Ok(()),
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        Some(kind) => kind.as_str().into_iter().collect(),
    };
    let is = |kind: &&str| match *kind {
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => false,
    };
    if kinds.iter().any(is) { Ok(()) } else { Err(format!("{at}: {value} is none of {kinds:?}")) }
}

fn words(rules: &Map<String, Value>, value: &Value, at: &str) -> Result<(), String> {
    let in_list = rules.get("enum").and_then(Value::as_array).is_none_or(|words| words.contains(value));
    let is_it = rules.get("const").is_none_or(|word| word == value);
    let fits = match (rules.get("pattern").and_then(Value::as_str), value.as_str()) {
        (Some(pattern), Some(text)) => regex_lite::Regex::new(pattern).unwrap().is_match(text),
        _ => true,
    };
    let least =
        rules.get("minimum").and_then(Value::as_i64).is_none_or(|least| value.as_i64() >= Some(least));
    if in_list && is_it && fits && least {
        Ok(())
    } else {
        Err(format!("{at}: {value} does not fit {rules:?}"))
    }
}
