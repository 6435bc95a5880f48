//! The configuration: its problems, example, schema and reference page.

mod schema;
mod secrets;

use std::path::Path;

use super::support::{oncebox, oncebox_with};

/// No machine can listen on the address, so `serve` also ends if it accepts a configuration by mistake.
const SERVE: &[&str] = &["serve", "--listen", "192.0.2.1:1"];

/// Runs `config check` on a configuration.
fn said_of(config: &str, args: &[&str]) -> (Option<i32>, String) {
    said_by(&["config", "check"], config, args)
}

/// Runs a command with a configuration.
fn said_by(command: &[&str], config: &str, args: &[&str]) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("oncebox.toml"), config).unwrap();
    let output = oncebox(dir.path(), &[command, args].concat());
    let said = if output.status.success() { &output.stdout } else { &output.stderr };
    (output.status.code(), String::from_utf8_lossy(said).trim_end().to_owned())
}

fn printed(what: &str) -> String {
    let output = oncebox(Path::new("."), &["config", what]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the example with all disabled settings enabled.
fn everything() -> String {
    let on = |line: &str| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with([' ', '#']) && !setting.is_empty() => setting.to_owned(),
        _ => line.to_owned(),
    };
    printed("example").lines().map(on).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_is_valid_also_with_all_settings_enabled() {
    for config in [printed("example"), everything()] {
        let (code, said) = said_of(&config, &["--assume-secrets"]);
        assert_eq!((code, said.as_str()), (Some(0), "oncebox.toml: valid; inboxes: 1, handlers: 1"));
    }
}

#[test]
fn the_example_matches_the_schema_and_has_every_setting() {
    let schema: serde_json::Value = serde_json::from_str(&printed("schema")).unwrap();
    for config in [printed("example"), everything()] {
        let config: toml::Value = toml::from_str(&config).unwrap();
        schema::check(&schema, &serde_json::to_value(config).unwrap());
    }
    let example = printed("example");
    for name in schema::names(&schema) {
        let shown = example.lines().any(|line| {
            let line = line.trim_start_matches('#');
            line.starts_with(&format!("{name} ="))
                || line.contains(&format!("[{name}."))
                || line.contains(&format!("[{name}]"))
                || line.contains(&format!(".{name}]"))
                || line.contains(&format!(".{name}."))
        });
        // A setting in an inline table.
        assert!(shown || example.contains(&format!("{name} = ")), "the example does not show `{name}`");
    }
}

#[test]
fn values_that_do_not_match_the_schema_are_found() {
    let schema: serde_json::Value = serde_json::from_str(&printed("schema")).unwrap();
    for wrong in [
        r#"{ "colour": 1 }"#,
        r#"{ "grace": 5 }"#,
        r#"{ "grace": "soon" }"#,
        r#"{ "store": { "main": {} } }"#,
        r#"{ "inbox": { "a": { "on_conflict": "maybe" } } }"#,
        r#"{ "inbox": { "a": { "handler": { "h": { "url": "http://x", "retry": "sometimes" } } } } }"#,
        r#"{ "inbox": { "a": { "handler": { "h": { "url": "http://x", "secret": "hunter2" } } } } }"#,
    ] {
        let config = serde_json::from_str(wrong).unwrap();
        let fits = std::panic::catch_unwind(|| schema::check(&schema, &config));
        assert!(fits.is_err(), "{wrong}");
    }
}

/// `ONCEBOX_WRITE_DOCS=1` writes the page again.
#[test]
fn the_page_of_all_settings_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/config.md");
    let current = printed("reference");
    if std::env::var_os("ONCEBOX_WRITE_DOCS").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == current,
        "docs/config.md is not what `oncebox config reference` prints; run this test with ONCEBOX_WRITE_DOCS=1"
    );
}

/// Configurations and their complete errors: file, line, setting, problem and advice.
const WRONG: &[(&str, &str)] = &[
    (
        "[inbox.orders]\nretension = \"7d\"",
        "oncebox.toml:2: `inbox.orders.retension`: unknown setting `retension`; did you mean `retention`?",
    ),
    (
        "[inbox.orders]\nadopted_tenant = \"acme\"\ntenants = \"optional\"",
        "oncebox.toml:2: `inbox.orders.adopted_tenant`: messages of this tenant would mix with messages without a tenant; set `tenants = \"required\"`",
    ),
    (
        "[inbox.orders]\nretention = \"a week\"",
        "oncebox.toml:2: `inbox.orders.retention`: \"a week\"is not a time span; write it like \"12h\" or \"7d\", or \"forever\"",
    ),
    (
        "[inbox.orders]\non_conflict = \"first-win\"",
        "oncebox.toml:2: `inbox.orders.on_conflict`: unknown value `first-win`; did you mean `first-wins`?",
    ),
    (
        "[inbox.orders.handler.ship]\nretry = \"quick\"",
        "oncebox.toml:1: `inbox.orders.handler.ship`: the setting `url` is missing; add it",
    ),
    (
        "[inbox.orders.handler.ship]\nurl = \"https://example.com\"\nretry = \"quik\"",
        "oncebox.toml:3: `inbox.orders.handler.ship.retry`: unknown value `quik`; did you mean `quick`?",
    ),
    (
        "[inbox.orders.handler.ship]\nurl = \"https://example.com\"\nretry = { attempts = 3, frist = \"1s\" }",
        "oncebox.toml:3: `inbox.orders.handler.ship.retry`: unknown setting `frist`; did you mean `first`?",
    ),
    (
        "[inbox.orders.handler.ship]\nurl = \"https://example.com\"\nrate = \"fast\"",
        "oncebox.toml:3: `inbox.orders.handler.ship.rate`: \"fast\" is not a rate; write it like \"100/s\", \"30/min\" or \"10/h\"",
    ),
    (
        "[inbox.orders.handler.ship]\nurl = \"https://example.com\"\nsecret = \"hunter2\"",
        "oncebox.toml:3: `inbox.orders.handler.ship.secret`: never write a secret down; name it with \"env:NAME\" or \"file:/path\"",
    ),
    (
        "[inbox.orders.handler.ship]\nurl = \"https://example.com\"\ntypes = [\n  \"order.*\",\n  \"*.placed\",\n]",
        "oncebox.toml:1: `inbox.orders.handler.ship`: the handler \"ship\" is registered for \"*.placed\": a pattern has one `*`, at its end; write it like `order.*`",
    ),
    (
        "listen = \"8471\"\n[inbox.orders]",
        "oncebox.toml:1: `listen`: \"8471\"is not an address; write it like \"127.0.0.1:8471\" or \"[::1]:8471\"",
    ),
    (
        "[api]\nlisten = \"0.0.0.0:8472\"\n[inbox.orders]",
        "oncebox.toml:2: `api.listen`: other machines can reach this address, and no [api.token.NAME] is set; create one with `oncebox token`, or listen on 127.0.0.1",
    ),
    (
        "[api]\nlisten = \"127.0.0.1:8471\"\nredact_pointers = [\"card\"]\nredact_patterns = [\"(\"]\n[inbox.orders]",
        "oncebox.toml:2: `api.listen`: `listen` uses this address for messages; choose another one for the API\n\
         oncebox.toml:4: `api.redact_patterns`: \"(\": a pattern of the redaction is not a regular expression\n\
         oncebox.toml:3: `api.redact_pointers`: the pointer \"card\" does not begin with `/`",
    ),
    (
        "[api.token.ada]\nhash = \"hunter2\"\nroles = []\n[api.token.bo]\nhash = \"sha256:00\"\nroles = \"root\"\n[inbox.orders]",
        "oncebox.toml:6: `api.token.bo.roles`: unknown value `root`; use one of viewer, payload-reader, operator, admin",
    ),
    (
        "[api.token.ada]\nhash = \"hunter2\"\nroles = []\n[inbox.orders]",
        "oncebox.toml:3: `api.token.ada.roles`: a token needs a role; name one, or remove the token\n\
         oncebox.toml:2: `api.token.ada.hash`: not a hash of a token; create one with `oncebox token`, like \"sha256:\" and 64 digits",
    ),
    (
        "[health]\nidle_degraded = \"1h\"\nbacklog_degraded = 20000\n[inbox.orders]",
        "oncebox.toml:3: `health.backlog_degraded`: messages are counted only up to 10000, so this limit would never apply; lower it\n\
         oncebox.toml:2: `health.idle_degraded`: `idle_degraded` is longer than `idle_unhealthy`",
    ),
    (
        "[store.main]\nurl = \"mysql://root:hunter2@localhost\"\n[inbox.orders]",
        "oncebox.toml:2: `store.main.url`: not the URL of a store; start it with \"sqlite:\" or \"postgres://\"",
    ),
    (
        "[store.main]\nurl = \"sqlite:a.db\"\npooled = true\n[inbox.orders]\nstore = \"mian\"",
        "oncebox.toml:3: `store.main.pooled`: `pooled` is for PostgreSQL, and this store is SQLite; remove it\n\
         oncebox.toml:5: `inbox.orders.store`: unknown store \"mian\"; did you mean \"main\"?",
    ),
    (
        "[inbox.orders]\nlease = \"1ms\"",
        "oncebox.toml:1: `inbox.orders`: `lease` is 1ms: it would run out during an ordinary pause; use at least 300ms",
    ),
    (
        "[inbox.orders.http.shop]\nverify = \"token\"",
        "oncebox.toml:2: `inbox.orders.http.shop.verify`: senders cannot be verified without a secret; add `secret = \"env:NAME\"`",
    ),
    (
        "[inbox.orders.rabbitmq.q]\nurl = \"env:AMQP_URL\"\nqueue = \"q\"",
        "oncebox.toml:3: `inbox.orders.rabbitmq.q.queue`: rejected messages would be lost; name the `dead_letter_exchange` of the queue, a `dead_letter_queue` to declare, or a `rejected_exchange`, or set `discard_rejected = true`",
    ),
    (
        "[inbox.orders.handler.ship]\nurl = \"http://127.0.0.1:9000/\"",
        "oncebox.toml:2: `inbox.orders.handler.ship.url`: 127.0.0.1 is 127.0.0.1, a loopback address; add it to `allow_private` to allow it",
    ),
    (
        "allow_private = [\"10.0.0.1/8\"]",
        "oncebox.toml:1: `allow_private`: \"10.0.0.1/8\"is not a network: the address has bits beyond the prefix length; shorten the address or raise the length",
    ),
    (
        "[inbox.orders.http.shop]\ntenant = \"acme\"",
        "oncebox.toml:2: `inbox.orders.http.shop.tenant`: the inbox has no tenants; set `tenants = \"optional\"` or \"required\" for it, or remove this",
    ),
    (
        "[inbox.orders]\ntenants = \"required\"\n[inbox.orders.rabbitmq.q]\nurl = \"env:AMQP_URL\"\nqueue = \"q\"\ndiscard_rejected = true",
        "oncebox.toml:3: `inbox.orders.rabbitmq.q`: the inbox requires a tenant, and this source names none; add `tenant = \"..\"` to the source, or set `tenants = \"optional\"`",
    ),
    (
        "[inbox.orders.http.shop]\nverify = \"token\"\nsecret = []",
        "oncebox.toml:3: `inbox.orders.http.shop.secret`: the list has no secret; name at least one, or remove the setting",
    ),
    (
        "[inbox.orders.handler.ship]\nurl = \"https://example.com\"\nsecret = []",
        "oncebox.toml:3: `inbox.orders.handler.ship.secret`: the list has no secret; name at least one, or remove the setting",
    ),
    (
        "[inbox.orders]\nretention = \"1d\"\n[inbox.orders.http.pay]\nformat = \"stripe\"\nsecret = \"env:S\"",
        "oncebox.toml:3: `inbox.orders.http.pay`: the source \"pay\" may redeliver a message after 3days, and the retention window is 1day; set `retention` to more, or `short_window = \"warn\"`",
    ),
    (
        "[inbox.orders.rabbitmq.q]\nurl = \"env:AMQP_URL\"\nqueue = \"q\"\nredelivers = \"forever\"\ndiscard_rejected = true",
        "oncebox.toml:1: `inbox.orders.rabbitmq.q`: the source \"q\" may redeliver a message after any time, and the retention window is 7days; set `retention` to more, or `short_window = \"warn\"`",
    ),
    (
        "[inbox.orders.http.hub]\nformat = \"github\"\nsecret = \"env:S\"\nreplay_window = \"5m\"\nsignature_prefix = \"x\"",
        "oncebox.toml:5: `inbox.orders.http.hub.signature_prefix`: this is for `verify = \"hmac\"`; remove it\n\
         oncebox.toml:4: `inbox.orders.http.hub.replay_window`: these signatures have no time, so they cannot expire; remove it",
    ),
    (
        "[inbox.orders.rabbitmq.q]\nurl = \"env:AMQP_URL\"\nqueue = \"q\"\ndead_letter_exchange = \"\"\nrejected_routing_key = \"k\"\ntype = \"t\"\ntype_header = \"x\"",
        "oncebox.toml:4: `inbox.orders.rabbitmq.q.dead_letter_exchange`: the default exchange would return dead letters to this queue or drop them; name another exchange, or add the target queue as `dead_letter_routing_key`\n\
         oncebox.toml:5: `inbox.orders.rabbitmq.q.rejected_routing_key`: this key has no effect without a `rejected_exchange`; add it, or remove this\n\
         oncebox.toml:6: `inbox.orders.rabbitmq.q.type`: `type` and `type_header` exclude each other; remove one of them",
    ),
    (
        "[inbox.orders.rabbitmq.q]\nurl = \"env:AMQP_URL\"\nqueue = \"q\"\ndelivery_limit = 5\ndead_letter_queue = \"d\"\ndead_letter_exchange = \"x\"",
        "oncebox.toml:5: `inbox.orders.rabbitmq.q.dead_letter_queue`: an existing queue is not declared; add `declare`, or name its `dead_letter_exchange`\n\
         oncebox.toml:6: `inbox.orders.rabbitmq.q.dead_letter_exchange`: `dead_letter_queue` excludes this setting; remove one of them\n\
         oncebox.toml:4: `inbox.orders.rabbitmq.q.delivery_limit`: this needs a declared quorum queue; add `declare = \"quorum\"`, or remove it",
    ),
    (
        "[inbox.orders.handler.ship]\nurl = \"https://example.com\"\nretention = \"1d\"\nbackfill = true",
        "oncebox.toml:4: `inbox.orders.handler.ship.backfill`: a handler of this inbox has its own `retention` and would get messages again that it has forgotten; remove one of the two",
    ),
    (
        "connections_per_address = 0\n[inbox.orders]",
        "oncebox.toml:1: `connections_per_address`: no sender could connect; set at least 1",
    ),
    (
        "listen = \"0.0.0.0:8471\"\n[api]\nlisten = \"127.0.0.1:8471\"\n[inbox.orders]",
        "oncebox.toml:3: `api.listen`: `listen` uses this address for messages; choose another one for the API",
    ),
    (
        "listen = \"127.0.0.1:8471\"\n[api]\nlisten = \"[::]:8471\"\n[api.token.ada]\nhash = \"sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4882\"\nroles = \"admin\"\n[inbox.orders]",
        "oncebox.toml:3: `api.listen`: `listen` uses this address for messages; choose another one for the API",
    ),
    ("", "oncebox.toml:1: no inbox is configured; add one, like [inbox.orders]"),
];

#[test]
fn problems_have_a_location_and_advice() {
    let mut wrong = Vec::new();
    for (config, expected) in WRONG {
        let expected = format!("oncebox: {expected}");
        for (code, said) in [said_of(config, &["--assume-secrets"]), said_by(SERVE, config, &[])] {
            assert!(!said.contains("hunter2"), "{said}");
            if (code, &said) != (Some(2), &expected) {
                wrong.push(format!("{config}\n--- expected\n{expected}\n--- got {code:?}\n{said}\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n=======\n"));
}

#[test]
fn secrets_are_read_unless_they_are_assumed() {
    let config =
        "[inbox.orders.handler.ship]\nurl = \"https://example.com\"\nsecret = [\"env:ONCEBOX_NOT_SET\"]";
    assert_eq!(said_of(config, &["--assume-secrets"]).0, Some(0));
    let (code, said) = said_of(config, &[]);
    assert_eq!(code, Some(2));
    assert_eq!(
        said,
        "oncebox: oncebox.toml:3: `inbox.orders.handler.ship.secret`: the environment variable ONCEBOX_NOT_SET is not set"
    );
}

/// Invalid configurations and a part of their errors. `serve` must refuse them too, before it opens anything.
const BAD: &[(&str, &str)] = &[
    ("[store.main]\nurl = \"env:ONCEBOX_NOT_SET\"\n[inbox.orders]", "ONCEBOX_NOT_SET is not set"),
    ("[store.main]\nurl = \"env:ONCEBOX_EMPTY\"\n[inbox.orders]", "env:ONCEBOX_EMPTY is empty"),
    ("[store.main]\nurl = \"file:no-such-file\"\n[inbox.orders]", "no-such-file cannot be read"),
    (
        "[store.main]\nurl = \"postgres://127.0.0.1:1/x\"\nschema = \"a; drop table b\"\n[inbox.orders]",
        "`schema` is \"a; drop table b\": it is not a plain name",
    ),
    (
        "[store.main]\nurl = \"postgres://127.0.0.1:1/x\"\nprefix = \"1_\"\n[inbox.orders]",
        "`prefix` is \"1_\": it is not a plain name",
    ),
    ("[store.main]\nurl = \"postgres://127.0.0.1:99999/x\"\n[inbox.orders]", "`store.main.url`: "),
    (
        "[store.main]\nurl = \"sqlite:missing/oncebox.db\"\n[inbox.orders]",
        "the directory missing does not exist",
    ),
    ("[store.main]\nurl = \"sqlite:.\"\n[inbox.orders]", ". is a directory"),
    (
        "[store.main]\nurl = \"sqlite:/proc/oncebox.db\"\n[inbox.orders]",
        "nothing can be written to the directory /proc",
    ),
    (
        "[store.main]\nurl = \"postgres://u@db.example.com/x?sslrootcert=no-such-ca.pem\"\n[inbox.orders]",
        "the file no-such-ca.pem of `sslrootcert` cannot be read",
    ),
    (
        "[store.main]\nurl = \"postgres://u@a:1,b:2/x?sslmode=require&sslkey=oncebox.toml\"\n[inbox.orders]",
        "the file oncebox.toml of `sslkey` is not PEM",
    ),
    ("[store.main]\nurl = \"sqlite:\"\n[inbox.orders]", "the URL has no file"),
    (
        "[inbox.orders.http.hub]\nformat = \"github\"\nsecret = \"env:ONCEBOX_NOT_SET\"",
        "ONCEBOX_NOT_SET is not set",
    ),
    (
        "[inbox.orders.http.hub]\nformat = \"github\"\nsecret = \"env:ONCEBOX_EMPTY\"",
        "ONCEBOX_EMPTY is empty",
    ),
    (
        "[inbox.orders.http.hub]\nformat = \"github\"\nsecret = \"env:ONCEBOX_BLANK\"",
        "ONCEBOX_BLANK is empty",
    ),
    (
        "[inbox.orders.http.pay]\nformat = \"standard-webhooks\"\nsecret = \"env:ONCEBOX_WORD\"",
        "is not base64",
    ),
    (
        "[inbox.orders.http.shop]\nverify = \"token\"\nsecret = \"env:ONCEBOX_PHRASE\"",
        "holds what no header can carry",
    ),
    (
        "[inbox.orders.handler.ship]\nurl = \"https://example.com\"\nsecret = \"env:ONCEBOX_EMPTY\"",
        "ONCEBOX_EMPTY is empty",
    ),
    (
        "[inbox.orders.handler.ship]\nurl = \"https://example.com\"\nheaders = { a = \"env:ONCEBOX_NOT_SET\" }",
        "ONCEBOX_NOT_SET is not set",
    ),
    ("[inbox.orders.handler.ship]\nurl = \"https://example.com\"\nconcurrency = 0", "concurrency"),
    (
        "[inbox.orders.handler.ship]\nurl = \"https://example.com\"\ntimeout = \"0s\"",
        "ship.timeout`: no response can arrive in time",
    ),
    ("[inbox.orders.handler.ship]\nurl = \"https://example.com\"\nrate = \"0/s\"", "rate"),
    (
        "[inbox.orders.handler.ship]\nurl = \"https://example.com\"\nretry = { attempts = 0, first = \"1s\" }",
        "ship.retry`: `attempts` is 0",
    ),
    ("[inbox.orders.handler.\"\"]\nurl = \"https://example.com\"", "handler key"),
    ("[inbox.orders]\nlease = \"1ms\"", "`lease` is 1ms"),
    ("[inbox.orders]\nin_flight = 0", "`in_flight` is 0"),
    ("[inbox.orders]\nmax_payload = 0", "`limits.payload` is 0"),
    ("[inbox.orders]\npoll = \"0s\"", "`poll` is 0ns"),
    ("[inbox.orders]\nretention = \"1s\"", "`retention` is shorter than `lease`"),
    ("[inbox.\"or ders\"]", "inbox"),
    ("[inbox.a.http.x]\n[inbox.b.http.x]", "the inbox \"a\" has a source with the same name"),
    ("[inbox.orders.http.x]\npath = \"no-slash\"", "path"),
    (
        "[inbox.orders.rabbitmq.q]\nurl = \"env:ONCEBOX_WORD\"\nqueue = \"q\"\ndiscard_rejected = true",
        "`inbox.orders.rabbitmq.q",
    ),
    ("[tls]\ncertificate = \"none.pem\"\nkey = \"none.pem\"\n[inbox.orders]", "\"none.pem\" cannot be read"),
    (
        "[health]\nbacklog_degraded = 900\nbacklog_unhealthy = 100\n[inbox.orders]",
        "`health.backlog_degraded`: `backlog_degraded` is more than `backlog_unhealthy`",
    ),
    (
        "[health]\nlag_degraded = \"2h\"\nlag_unhealthy = \"1h\"\n[inbox.orders]",
        "`health.lag_degraded`: `lag_degraded` is longer than `lag_unhealthy`",
    ),
    (
        "[health]\nlag_unhealthy = \"1m\"\n[inbox.orders]",
        "`health.lag_unhealthy`: `lag_degraded` is longer than `lag_unhealthy` by default; set `lag_degraded` too",
    ),
    (
        "[health]\nblocked_degraded = \"2h\"\nblocked_unhealthy = \"1h\"\n[inbox.orders]",
        "`health.blocked_degraded`: `blocked_degraded` is longer than `blocked_unhealthy`",
    ),
    ("[health]\nidle_degraded = \"1h\"\n[inbox.orders]", "`idle_degraded` is longer than `idle_unhealthy`"),
    ("[health]\nbacklog_degraded = 0\n[inbox.orders]", "`backlog_degraded` is zero and would always apply"),
    (
        "[health]\nstore_unhealthy = \"0s\"\n[inbox.orders]",
        "`store_unhealthy` is zero and would always apply",
    ),
];

// `serve` and `config check` must accept the same files: both begin with the same function.
#[test]
fn check_and_serve_refuse_the_same_configurations() {
    let mut wrong = Vec::new();
    for (config, part) in BAD {
        let checked = said_by(&["config", "check"], config, &[]);
        let served = said_by(SERVE, config, &[]);
        if checked.0 != Some(2) || checked != served || !checked.1.contains(part) {
            wrong.push(format!("{config}\n--- wanted: {part}\n--- check {checked:?}\n--- serve {served:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n=======\n"));
}

#[test]
fn check_and_serve_refuse_the_same_environment() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("oncebox.toml"), "[inbox.orders]").unwrap();
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9");
    let grpc = [endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    let said = |args: &[&str], env: &[(&str, &str)]| {
        let output = oncebox_with(dir.path(), args, env);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (checked, served) = (said(&["config", "check"], &grpc), said(SERVE, &grpc));
    assert_eq!(checked, served);
    assert!(checked.0 == Some(2) && checked.1.contains("OTEL_EXPORTER_OTLP_PROTOCOL"), "{checked:?}");
    for good in [&grpc[1..], &[endpoint]] {
        assert_eq!(said(&["config", "check"], good).0, Some(0), "{good:?}");
    }
}

#[test]
fn names_of_tables_are_checked_though_the_url_is_a_secret() {
    let config = "[store.main]\nurl = \"env:ONCEBOX_NOT_SET\"\nschema = \"a; drop table b\"\n[inbox.orders]";
    let (code, said) = said_of(config, &["--assume-secrets"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("oncebox.toml:3: `store.main.schema`: `schema` is \"a; drop table b\""), "{said}");
}

// SQLite opens a file that it cannot write, and then stores nothing.
#[cfg(unix)]
#[test]
fn a_file_that_cannot_be_written_is_refused_by_check_and_serve_alike() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;

    for (on_file, on_dir, part) in [
        (0o444, 0o755, "the file oncebox.db cannot be written"),
        (0o666, 0o555, "nothing can be written to the directory ."),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for (name, text) in [("oncebox.toml", "[inbox.orders]"), ("oncebox.db", "")] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        mode(&dir.path().join("oncebox.db"), on_file);
        mode(dir.path(), on_dir);
        for args in [&["config", "check"], SERVE] {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_oncebox"));
            if rustix::process::geteuid().is_root() {
                // Nothing is forbidden to root.
                command.uid(65_534);
            }
            let output = command.current_dir(dir.path()).args(args).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
            assert!(said.contains(part), "{args:?}: {said}");
        }
        mode(dir.path(), 0o755);
    }
}
