//! Reads the URL of a database, and never shows its secrets. Tests: below.

use std::net::IpAddr;

use oncebox_core::{Error, ErrorKind, Result};
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx_core::Url;

/// Query parameters that the driver reads, besides `options[NAME]`.
const READ: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// Parameters that name a file.
const FILES: [&str; 3] = ["sslrootcert", "sslcert", "sslkey"];

/// First bytes of a PEM block.
const BEGIN: &[u8] = b"-----BEGIN ";

/// TLS parameters of other drivers that are safe to ignore.
const OF_OTHERS: [&str; 3] = ["sslnegotiation", "sslsni", "sslcompression"];

const MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// The parts of a URL, before they are parsed.
struct UrlParts<'a> {
    scheme: &'a str,
    /// Empty if there is no user.
    user: &'a str,
    hosts: &'a str,
    /// Path and query.
    behind: &'a str,
}

impl<'a> UrlParts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (authority, behind) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        Some(Self { scheme, user, hosts, behind })
    }
}

/// Returns true if a URL contains a password, after the user or in the query.
pub(crate) fn has_password(text: &str) -> bool {
    let Some(UrlParts { user, behind, .. }) = UrlParts::of(text) else { return false };
    let query = behind.split_once('?').map_or("", |(_, query)| query);
    let query = Url::parse(&format!("postgres://localhost/?{query}"));
    user.split_once(':').is_some_and(|(_, password)| !password.is_empty())
        || query
            .is_ok_and(|url| url.query_pairs().any(|(name, value)| name == "password" && !value.is_empty()))
}

/// Reads a URL with one or several hosts: `host1:5432,host2:5433`. One of them is the primary. Returns options per
/// host, because the driver takes only one host.
pub(crate) fn read_all(text: &str) -> Result<Vec<PgConnectOptions>> {
    let Some(UrlParts { scheme, user, hosts, behind }) = UrlParts::of(text) else {
        return Ok(vec![read(text)?]);
    };
    if !hosts.contains(',') {
        // A URL without a host between user and database cannot be parsed, so check its query first.
        let query = behind.split_once('?').map_or("", |(_, query)| query);
        if query.split('&').any(|word| word.starts_with("host=") && word.contains([',', '%'])) {
            return Err(refused(
                "several hosts are written before the database, as in postgres://user@host1:5432,host2:5432/database",
            ));
        }
        return Ok(vec![read(text)?]);
    }
    let behind = without_attributes(behind)?;
    let user = if user.is_empty() { String::new() } else { format!("{user}@") };
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:[]%".contains(c);
    hosts
        .split(',')
        .map(|host| {
            if host.is_empty() || !host.chars().all(plain) {
                return Err(refused(
                    "the hosts in the PostgreSQL URL cannot be read; several have the form host1:5432,host2:5432, and in a password a \
                     comma is written as %2C and an @ as %40",
                ));
            }
            read(&format!("{scheme}://{user}{host}{behind}"))
        })
        .collect()
}

/// Removes `target_session_attrs`, because the store itself searches for the primary. Returns an error if it requests a
/// standby.
fn without_attributes(behind: &str) -> Result<String> {
    let Some((path, query)) = behind.split_once('?') else { return Ok(behind.to_owned()) };
    let mut kept = Vec::new();
    for word in query.split('&') {
        match word.strip_prefix("target_session_attrs=") {
            None => kept.push(word),
            Some("read-write" | "primary" | "any") => {}
            Some(_) => {
                return Err(refused(
                    "target_session_attrs in the PostgreSQL URL asks for a server that takes no writes; the store needs the primary: use \
                     read-write, or leave it out",
                ));
            }
        }
    }
    Ok(if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) })
}

/// Reads a URL. The driver ignores unknown parameters and logs their values, which may be passwords. This function refuses
/// an unknown parameter that may protect the connection, and skips one that is for another driver. It names the parameter
/// and never its value. The driver's own errors may quote the URL and are not shown.
pub(crate) fn read(text: &str) -> Result<PgConnectOptions> {
    if !(text.starts_with("postgres://") || text.starts_with("postgresql://")) {
        return Err(refused("a PostgreSQL URL starts with postgres:// or postgresql://"));
    }
    let unreadable = || {
        refused(
            "the PostgreSQL URL cannot be read; it has the form postgres://user:password@host:port/database?sslmode=verify-full, and \
             in a password #, /, ? and @ are written as %23, %2F, %3F and %40",
        )
    };
    let mut url = Url::parse(text).map_err(|_| unreadable())?;
    if is_torn(&url) {
        return Err(unreadable());
    }
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let mut kept = Vec::with_capacity(pairs.len());
    let mut mode = std::env::var("PGSSLMODE").ok().map(|mode| ("the variable PGSSLMODE", mode));
    for (name, value) in pairs {
        if name == "sslmode" || name == "ssl-mode" {
            mode = Some(("`sslmode` in the PostgreSQL URL", value.clone()));
        }
        if READ.contains(&&*name) || name.starts_with("options[") && name.ends_with(']') {
            kept.push((name, value));
        } else if let Some(meant) = meant(&name, &value) {
            let name = shown(&name, 40);
            return Err(refused(format!(
                "the PostgreSQL URL says {name}, which the driver does not know; {meant}"
            )));
        } else {
            let name = shown(&name, 40);
            tracing::warn!(parameter = name, advice = instead(&name), "ignored parameter of PostgreSQL URL");
        }
    }
    if let Some((place, mode)) = &mode
        && !MODES.contains(&&*mode.to_ascii_lowercase())
    {
        return Err(refused(format!("{place} is {}; use one of {}", shown(mode, 20), MODES.join(", "))));
    }
    url.set_query(None);
    if !kept.is_empty() {
        url.query_pairs_mut().extend_pairs(kept);
    }
    let connect = PgConnectOptions::from_url(&url).map_err(|_| unreadable())?;
    // PgBouncer refuses this parameter by default, and no server since PostgreSQL 12 needs it.
    let connect = connect.extra_float_digits(None);
    let is_decided = mode.is_some() || is_near(&connect);
    Ok(if is_decided { connect } else { connect.ssl_mode(PgSslMode::Require) })
}

/// Checks that files with certificates and keys can be read, if TLS may be used.
pub(crate) fn check_files(connect: &PgConnectOptions) -> Result<()> {
    if matches!(connect.get_ssl_mode(), PgSslMode::Disable) {
        return Ok(());
    }
    // The driver shows files in its URL in this form, for every source of their names.
    for (name, value) in connect.to_url_lossy().query_pairs() {
        let Some(path) = value.strip_prefix("file: ").filter(|_| FILES.contains(&&*name)) else { continue };
        let text = std::fs::read(path).map_err(|error| {
            refused(format!("the file {path} of `{name}` cannot be read: {error}; name one that is there"))
        })?;
        if !text.windows(BEGIN.len()).any(|part| part == BEGIN) {
            return Err(refused(format!("the file {path} of `{name}` is not PEM; name one that is")));
        }
    }
    Ok(())
}

fn refused(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, what)
}

/// Returns true if a part of the password was read as host, path or query, because one of its characters is not escaped.
fn is_torn(url: &Url) -> bool {
    let query = url.query().unwrap_or_default();
    let words = query.split('&').filter(|word| !word.is_empty());
    url.fragment().is_some()
        || url.path().contains('@')
        || words.clone().any(|word| !word.contains('='))
        || (query.contains('@') && url.path().is_empty())
}

/// Setting that replaces an ignored parameter.
fn instead(name: &str) -> &'static str {
    match name {
        "\"pgbouncer\"" => "for a pooler in transaction mode, set `pooled` of the store",
        "\"channel_binding\"" => "use `sslmode=verify-full` to verify the server",
        "\"schema\"" => "set the schema of the tables in the store's settings",
        _ => "",
    }
}

/// Explains an unknown name that may protect the connection or choose the server. Returns `None` if it is safe to ignore.
fn meant(name: &str, value: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    if lower == "gssencmode" && value == "require" {
        return Some("encryption is chosen with `sslmode`".into());
    }
    let near = |known: &&str| strsim::osa_distance(known, &lower) <= if known.len() > 5 { 2 } else { 1 };
    if let Some(known) = READ.into_iter().find(near).filter(|_| !OF_OTHERS.contains(&&*lower)) {
        return Some(format!("`{known}` is what it knows"));
    }
    let of_tls = lower.starts_with("ssl") || lower.starts_with("tls");
    let what = "TLS is chosen with `sslmode`, `sslrootcert`, `sslcert` and `sslkey`";
    (of_tls && !OF_OTHERS.contains(&&*lower)).then(|| what.into())
}

/// Returns a word of the URL for an error text, unless it may be a part of a password.
fn shown(word: &str, max: usize) -> String {
    let plain = |c: char| c.is_ascii_alphabetic() || c == '_' || c == '-';
    if word.is_empty() {
        "empty".into()
    } else if word.len() <= max && word.chars().all(plain) {
        format!("{word:?}")
    } else {
        "a word that is not shown".into()
    }
}

/// Returns true if the server is on this machine, where no network carries the traffic.
fn is_near(connect: &PgConnectOptions) -> bool {
    let host = connect.get_host();
    connect.get_socket().is_some()
        || host.starts_with('/')
        || host == "localhost"
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(query: &str) -> String {
        let error = read(&format!("postgres://app:hunter2@db.example.com/shop?{query}"));
        format!("{:?}", error.expect_err(query))
    }

    fn mode(query: &str) -> PgSslMode {
        read(&format!("postgres://app@db.example.com/shop?{query}")).expect(query).get_ssl_mode()
    }

    #[test]
    fn what_is_misspelt_is_named_and_not_ignored() {
        for typo in ["sslmod", "SSLMode", "ssl_mode", "sslrotcert", "pasword", "usr", "sslcrl", "tls", "prot"]
        {
            let text = error(&format!("{typo}=x"));
            assert!(text.contains(&format!("says {typo:?}")), "{text}");
        }
        assert!(error("sslmod=verify-full").contains("`sslmode` is what it knows"));
        let value = error("sslmode=verify_full");
        assert!(value.contains("\"verify_full\"") && value.contains("verify-full"), "{value}");
        assert!(error("ssl=true").contains("TLS is chosen with `sslmode`"));
        assert!(error("gssencmode=require&sslmode=disable").contains("`sslmode`"));
    }

    #[test]
    fn several_hosts_are_settings_for_each() {
        let read = |url: &str| read_all(url).map_err(|error| format!("{error:?}"));
        let all = read("postgres://app:p%40ss@a.example:5433,b.example/shop?target_session_attrs=read-write")
            .expect("a good URL");
        let places: Vec<(&str, u16)> = all.iter().map(|one| (one.get_host(), one.get_port())).collect();
        assert_eq!(places, [("a.example", 5433), ("b.example", 5432)]);
        assert!(all.iter().all(|one| one.get_database() == Some("shop") && one.get_username() == "app"));
        assert!(all.iter().all(|one| matches!(one.get_ssl_mode(), PgSslMode::Require)));
        assert_eq!(
            read("postgres://app@[::1]:5433,127.0.0.1/shop?sslmode=disable").expect("a good URL").len(),
            2
        );
        for (url, what) in [
            ("postgres://app:hunter2@a,b/shop?target_session_attrs=standby", "needs the primary"),
            ("postgres://app:hunter2@a,,b/shop", "host1:5432,host2:5432"),
            ("postgres://app:hunter2@/shop?host=a,b&sslmode=disable", "before the database"),
        ] {
            let error = read(url).expect_err(url);
            assert!(error.contains(what) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn a_password_is_seen_wherever_it_is_written() {
        for (url, has) in [
            ("postgres://app:x@a.example/shop", true),
            ("postgres://app:x@a:5432,b:5433/shop?sslmode=require", true),
            ("postgres://app@a:1,b:2/shop?sslmode=require&p%61ssword=x", true),
            ("postgres://app:@a:1,b:2/shop?password=", false),
            ("postgres://a:5432,b:5432/shop", false),
            ("env:DATABASE_URL", false),
            ("sqlite:oncebox.db", false),
        ] {
            assert_eq!(has_password(url), has, "{url}");
        }
    }

    // FAULTS J4: a misplaced part of a URL may be a password.
    #[test]
    fn nothing_that_may_be_secret_is_shown() {
        for query in [
            "pasword=s3cret",
            "port=s3cret",
            "sslmode=require?password=s3cret",
            "sslmode=disable;password=s3cret",
            "password=x&ssl-s3cret",
            "ssl%ffs3cret=%ff",
        ] {
            let text = error(query);
            assert!(!text.contains("hunter2") && !text.contains("s3cret"), "{query}: {text}");
        }
        // An unescaped character splits the password.
        for torn in [
            "x@s3cret#y",
            "x@s3cret?y",
            "x@s3cret/y",
            "x@s3cret?y=z",
            "123#s3cret",
            "123/s3cret",
            "123?s3cret",
        ] {
            let error = read(&format!("postgres://app:{torn}@db.example.com:5432/shop")).expect_err(torn);
            assert!(
                error.what().contains("%23") && !format!("{error:?}").contains("s3cret"),
                "{torn}: {error:?}"
            );
        }
        read("postgres://app@db/shop?user=me@server").expect("an escape is not needed there");
    }

    #[test]
    fn parameters_of_other_drivers_are_ignored() {
        for query in [
            "channel_binding=require",
            "connect_timeout=5&pgbouncer=true&pool=5&schema=public",
            "sslnegotiation=postgres&sslsni=1&gssencmode=prefer",
            "supa=base-pooler.x&target_session_attrs=read-write",
        ] {
            assert!(matches!(mode(query), PgSslMode::Require), "{query}");
        }
        assert!(matches!(mode("pgbouncer=true&sslmode=verify-full&a=b"), PgSslMode::VerifyFull));
        let url = "postgres://app@h/shop?options[search_path]=a%20b&application_name=x%2By&host=/run/pg";
        let connect = read(url).expect("a good URL");
        assert_eq!(connect.get_options(), Some("-c search_path=a\\ b"));
        assert_eq!(connect.get_application_name(), Some("x+y"));
        assert!(is_near(&connect));
    }
}
