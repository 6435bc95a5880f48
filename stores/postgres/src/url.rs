//! The URL of a database, read without giving away what is in it.

use std::net::IpAddr;

use oncebox::{Error, ErrorKind, Result};
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx_core::Url;

/// What the driver reads of a query.
const READ: [&str; 19] = [
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
    "options[",
];

/// What other drivers and poolers put into URLs, and what makes no difference to what is stored or who can read it: left out.
const LEFT_OUT: [&str; 13] = [
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "connection_limit",
    "fallback_application_name",
    "gssencmode",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "pgbouncer",
    "pool_timeout",
    "target_session_attrs",
];

const MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// Reads a URL. The driver takes what it does not know for nothing, and logs it with its value, which may be a password: here it is
/// refused, by its name alone. The driver's own errors may quote the URL, and are not shown.
pub(crate) fn read(text: &str) -> Result<PgConnectOptions> {
    if !(text.starts_with("postgres://") || text.starts_with("postgresql://")) {
        return Err(refused("a PostgreSQL URL starts with postgres:// or postgresql://"));
    }
    let unreadable = || {
        refused(
            "the PostgreSQL URL cannot be read; it has the form postgres://user:password@host:port/database",
        )
    };
    let mut url = Url::parse(text).map_err(|_| unreadable())?;
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let mut kept = Vec::with_capacity(pairs.len());
    let mut mode = std::env::var("PGSSLMODE").ok().map(|mode| ("the variable PGSSLMODE", mode));
    for (name, value) in pairs {
        if name == "sslmode" || name == "ssl-mode" {
            mode = Some(("`sslmode` in the PostgreSQL URL", value.clone()));
        }
        if LEFT_OUT.contains(&&*name) {
            tracing::debug!(name, "left out of the PostgreSQL URL: it is for other drivers");
        } else if READ.contains(&&*name) || name.starts_with("options[") {
            kept.push((name, value));
        } else {
            return Err(unknown(&name));
        }
    }
    if let Some((place, mode)) = &mode
        && !MODES.contains(&&*mode.to_ascii_lowercase())
    {
        return Err(refused(format!("{place} is {mode:?}; use one of {}", MODES.join(", "))));
    }
    url.set_query(None);
    if !kept.is_empty() {
        url.query_pairs_mut().extend_pairs(kept);
    }
    let connect = PgConnectOptions::from_url(&url).map_err(|_| unreadable())?;
    let says = mode.is_some() || is_near(&connect);
    Ok(if says { connect } else { connect.ssl_mode(PgSslMode::Require) })
}

fn refused(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, what)
}

fn unknown(name: &str) -> Error {
    let instead = match name {
        "ssl" | "tls" => "; TLS is chosen with `sslmode`".to_owned(),
        "schema" | "currentSchema" | "search_path" => {
            "; the schema of the tables is a setting of the store, `schema`".to_owned()
        }
        _ => format!("; it knows {}, and options[NAME]", READ[..READ.len() - 1].join(", ")),
    };
    refused(format!("the PostgreSQL URL says {name:?}, which the driver does not know{instead}"))
}

/// Whether the server is on this machine: nobody can listen in.
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

    #[test]
    fn what_is_misspelt_is_named_and_not_ignored() {
        let typo = error("sslmod=verify-full");
        assert!(typo.contains("\"sslmod\"") && typo.contains("sslmode"), "{typo}");
        let value = error("sslmode=verify_full");
        assert!(value.contains("\"verify_full\"") && value.contains("verify-full"), "{value}");
        assert!(error("ssl=true").contains("`sslmode`"));
        assert!(error("schema=shop").contains("a setting of the store"));
    }

    #[test]
    fn no_value_is_shown() {
        for text in [error("pasword=s3cret"), error("port=s3cret"), error("s3cret%ff=%ff")] {
            assert!(!text.contains("hunter2") && !text.contains("=s3cret"), "{text}");
        }
        assert!(!error("pasword=s3cret").contains("s3cret"));
    }

    #[test]
    fn what_others_need_does_no_harm() {
        let url =
            "postgres://app@db.example.com/shop?channel_binding=require&sslmode=verify-full&pgbouncer=true";
        let connect = read(url).expect("a good URL");
        assert!(matches!(connect.get_ssl_mode(), PgSslMode::VerifyFull));
        let connect = read("postgres://app@db.example.com/shop?connect_timeout=5").expect("a good URL");
        assert!(matches!(connect.get_ssl_mode(), PgSslMode::Require));
        let url = "postgres://app@h/shop?options[search_path]=a%20b&application_name=x%2By&host=/run/pg";
        let connect = read(url).expect("a good URL");
        assert_eq!(connect.get_options(), Some("-c search_path=a\\ b"));
        assert_eq!(connect.get_application_name(), Some("x+y"));
        assert!(is_near(&connect));
    }
}
