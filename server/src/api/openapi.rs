//! The `OpenAPI` 3.1 document of the API, generated from the table of routes. Tests: below and `tests/serve/api/fuzz.rs`.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::access::ApiRole;
use super::problem::ProblemKind;
use super::routes::{ApiCall, ApiRoute, Method, PREFIX, ROUTES};
use crate::operator::wire;

/// Returns the whole document.
pub(crate) fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|set| {
        set.definitions_path = "/components/schemas".into();
        set.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<wire::ProblemDocument>();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let item = paths.entry(format!("{PREFIX}{}", route.path)).or_insert_with(|| json!({}));
        let method = match route.method {
            Method::Get => "get",
            Method::Post => "post",
        };
        item[method] = operation(route, &mut generator, problem.as_value());
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "oncebox",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Find and fix stuck messages in an inbox.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &ApiRoute, generator: &mut SchemaGenerator, problem: &Value) -> Value {
    let shape = route.call.shape(generator);
    let mut parameters: Vec<Value> = parts(route.path).map(part).collect();
    if let Some(query) = &shape.query {
        parameters.extend(query_parameters(query.as_value(), generator));
    }
    let mut responses = Map::new();
    responses.insert(
        route.status.to_string(),
        json!({ "description": "Success.", "content": { "application/json": { "schema": shape.response } } }),
    );
    for kind in problems(route, shape.body.is_some()) {
        let status = kind.status();
        let content = json!({ "application/problem+json": { "schema": problem } });
        let description = status.canonical_reason().unwrap_or_default();
        responses.insert(status.as_str().into(), json!({ "description": description, "content": content }));
    }
    let role = route.role.map_or("none", ApiRole::as_str);
    let mut operation = json!({
        "operationId": route.call.name(),
        "summary": route.summary,
        "description": format!("Required role: {role}."),
        "parameters": parameters,
        "responses": responses,
        "security": if route.role.is_some() { json!([{ "token": [] }]) } else { json!([]) },
        "x-role": route.role.map(ApiRole::as_str),
    });
    if let Some(body) = shape.body {
        let content = json!({ "application/json": { "schema": body } });
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation
}

/// Returns the problems that a route may respond with.
fn problems(route: &ApiRoute, body: bool) -> impl Iterator<Item = ProblemKind> {
    let (path, acts, open) = (route.path, route.method == Method::Post, route.role.is_none());
    ProblemKind::ALL.iter().copied().filter(move |kind| match kind {
        ProblemKind::Malformed
        | ProblemKind::Unauthenticated
        | ProblemKind::Throttled
        | ProblemKind::Forbidden
        | ProblemKind::Invalid
        | ProblemKind::Unavailable
        | ProblemKind::Unknown => !open,
        ProblemKind::NotFound => path.contains('{'),
        // The router answers these, whatever the route.
        ProblemKind::Method => false,
        ProblemKind::Refused | ProblemKind::Reused | ProblemKind::Changed => acts,
        ProblemKind::Timeout | ProblemKind::TooLarge | ProblemKind::MediaType => body,
        ProblemKind::Internal => true,
    })
}

/// Returns the names of the parameters in a path.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn part(name: &str) -> Value {
    let schema = match name {
        "key" => json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" }),
        "operation" => json!({ "type": "string", "format": "uuid" }),
        _ => json!({ "type": "string", "minLength": 1, "maxLength": 200 }),
    };
    json!({ "name": name, "in": "path", "required": true, "schema": schema })
}

/// Returns one parameter for each property of a query type.
fn query_parameters(schema: &Value, generator: &SchemaGenerator) -> Vec<Value> {
    let properties = properties(schema, generator);
    let parameter = |(name, schema): (String, Value)| json!({ "name": name, "in": "query", "required": false, "schema": without_null(schema) });
    properties.into_iter().map(parameter).collect()
}

/// Returns the properties of a type, whose schema may be a reference.
pub(super) fn properties(schema: &Value, generator: &SchemaGenerator) -> Map<String, Value> {
    let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
    let found = name.and_then(|name| generator.definitions().get(name)).unwrap_or(schema);
    found["properties"].as_object().cloned().unwrap_or_default()
}

/// Removes null from a schema: a query omits a parameter instead.
fn without_null(mut schema: Value) -> Value {
    if let Some(kinds) = schema["type"].as_array() {
        let kept: Vec<Value> = kinds.iter().filter(|kind| **kind != json!("null")).cloned().collect();
        if let [only] = &kept[..] {
            schema["type"] = only.clone();
        }
    }
    if let Some(several) = schema["anyOf"].as_array() {
        let kept: Vec<Value> = several.iter().filter(|one| one["type"] != json!("null")).cloned().collect();
        if let [only] = &kept[..] {
            let only = only.clone();
            let description = schema.get("description").cloned();
            schema = only;
            if let (Some(description), Some(fields)) = (description, schema.as_object_mut()) {
                fields.insert("description".into(), description);
            }
        }
    }
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("default");
    }
    schema
}

/// Returns the JSON type of each query parameter.
pub(super) fn query_kinds(call: ApiCall) -> Map<String, Value> {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let query = call.shape(&mut generator).query;
    let found = query.map(|query| properties(query.as_value(), &generator)).unwrap_or_default();
    found.into_iter().map(|(name, schema)| (name, without_null(schema)["type"].clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `$ref` of a value.
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn the_document_is_complete() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 50);
        for path in found {
            assert!(document.pointer(path.trim_start_matches('#')).is_some(), "{path} does not exist");
        }
        for route in ROUTES {
            let method = if route.method == Method::Get { "get" } else { "post" };
            let operation = &document["paths"][format!("{PREFIX}{}", route.path)][method];
            assert_eq!(operation["operationId"], route.call.name());
            assert_eq!(operation["x-role"].as_str(), route.role.map(ApiRole::as_str));
            let named = operation["parameters"].as_array().unwrap();
            assert_eq!(named.iter().filter(|one| one["in"] == "path").count(), parts(route.path).count());
        }
        assert_eq!(query_kinds(ApiCall::Entries)["limit"], "integer");
        assert_eq!(query_kinds(ApiCall::Entries)["status"], "array");
        assert_eq!(query_kinds(ApiCall::Quarantine)["reason"], Value::Null, "an enum has no type");
    }
}
