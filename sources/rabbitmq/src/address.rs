//! Address of the broker. No output shows the password. Tests: below.

use std::fmt;

use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use oncebox_core::{Error, ErrorKind, Result};
use url::{Host, Url};

const FORM: &str = "amqp://user:password@host:port/vhost";

/// Address of a broker. Its display omits the secret.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) uri: AMQPUri,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AMQPUri { scheme, authority, vhost, .. } = &self.uri;
        write!(f, "{scheme}://{}:{} (vhost {vhost:?})", authority.host, authority.port)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns an error that names a part of the URL. It never shows the whole URL, which has the password.
fn bad<T>(what: impl fmt::Display) -> Result<T> {
    let what = format!("the URL of RabbitMQ: {what}; it has the form {FORM}");
    Err(Error::new(ErrorKind::InvalidConfig, what))
}

impl Address {
    /// Parses a URL. Stricter than the driver, which replaces unreadable parts by defaults, such as another host by
    /// `localhost`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let scheme = match text.split_once("://") {
            Some(("amqp", _)) => AMQPScheme::AMQP,
            Some(("amqps", _)) => AMQPScheme::AMQPS,
            _ => return bad("it starts neither with amqp:// nor with amqps://"),
        };
        let url = match Url::parse(text) {
            Ok(url) => url,
            Err(url::ParseError::InvalidPort) => return bad("the port is not a number up to 65535"),
            Err(url::ParseError::EmptyHost) => return bad("there is no host"),
            Err(_) => {
                return bad(
                    "it cannot be read; `/`, `?`, `#`, `@` in user or password are written as %2F, %3F, %23, %40",
                );
            }
        };
        let host = match url.host() {
            Some(Host::Domain(name)) if !name.is_empty() => match decode(name) {
                Some(name) => name,
                None => return bad("the host is not UTF-8"),
            },
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            _ => return bad("there is no host"),
        };
        if url.fragment().is_some() {
            return bad("it has a `#`, which a password has to have as %23");
        }
        let port = url.port().unwrap_or_else(|| scheme.default_port());
        let (vhost, userinfo) = (vhost(url.path())?, userinfo(&url)?);
        let query = query(&url)?;
        Ok(Self { uri: AMQPUri { scheme, authority: AMQPAuthority { userinfo, host, port }, vhost, query } })
    }
}

/// Returns the virtual host; without a path, the default one.
fn vhost(path: &str) -> Result<String> {
    let Some(name) = path.strip_prefix('/') else { return Ok("/".into()) };
    if name.is_empty() {
        return bad(
            "behind the last `/` there is no vhost; leave the `/` out for the default one, which is %2F",
        );
    }
    if name.contains('/') {
        return bad("the vhost has a `/`, which is written as %2F");
    }
    match decode(name) {
        Some(name) => Ok(name),
        None => bad("the vhost is not UTF-8"),
    }
}

fn userinfo(url: &Url) -> Result<AMQPUserInfo> {
    let default = AMQPUserInfo::default();
    if url.username().is_empty() {
        return match url.password() {
            None => Ok(default),
            Some(_) => bad("there is a password, but no user"),
        };
    }
    let Some(password) = url.password() else { return bad("there is a user, but no password") };
    match (decode(url.username()), decode(password)) {
        (Some(username), Some(password)) => Ok(AMQPUserInfo { username, password }),
        _ => bad("user or password is not UTF-8"),
    }
}

fn query(url: &Url) -> Result<AMQPQueryString> {
    let mut query = AMQPQueryString::default();
    for (name, value) in url.query_pairs() {
        let fits = match &*name {
            "heartbeat" => value.parse().map(|seconds| query.heartbeat = Some(seconds)).is_ok(),
            "connection_timeout" => {
                value.parse().map(|millis| query.connection_timeout = Some(millis)).is_ok()
            }
            "channel_max" => value.parse().map(|max| query.channel_max = Some(max)).is_ok(),
            "frame_max" => value.parse().map(|bytes| query.frame_max = Some(bytes)).is_ok(),
            "auth_mechanism" => value.parse().map(|mechanism| query.auth_mechanism = Some(mechanism)).is_ok(),
            _ => {
                let name: String = name.chars().take(40).collect();
                return bad(format!(
                    "{name:?} is not known; heartbeat, connection_timeout, channel_max, frame_max and auth_mechanism are"
                ));
            }
        };
        if !fits {
            return bad(format!("the value of {name:?} does not fit"));
        }
    }
    Ok(query)
}

fn decode(text: &str) -> Option<String> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_an_address_are_read() {
        let uri = Address::parse("amqps://us%40er:p%23ss@broker.example/my%2Fvhost?heartbeat=7").unwrap().uri;
        assert_eq!(uri.scheme, AMQPScheme::AMQPS);
        assert_eq!((uri.authority.host.as_str(), uri.authority.port), ("broker.example", 5671));
        assert_eq!(uri.authority.userinfo.username, "us@er");
        assert_eq!(uri.authority.userinfo.password, "p#ss");
        assert_eq!((uri.vhost.as_str(), uri.query.heartbeat), ("my/vhost", Some(7)));
        let short = Address::parse("amqp://broker").unwrap().uri;
        assert_eq!((short.authority.port, short.vhost.as_str()), (5672, "/"));
        assert_eq!(short.authority.userinfo.username, "guest");
        assert_eq!(Address::parse("amqp://127.0.0.1:7").unwrap().uri.authority.host, "127.0.0.1");
        // The driver reads this one as `localhost`.
        assert_eq!(Address::parse("amqp://[2001:db8::1]:7").unwrap().uri.authority.host, "2001:db8::1");
    }

    #[test]
    fn a_bad_part_is_named_and_nothing_is_shown() {
        let bad = [
            ("redis://u:secret@h", "neither with amqp:// nor with amqps://"),
            ("amqp:u:secret", "neither with amqp:// nor with amqps://"),
            ("amqp://u:secret@h:99999", "the port is not a number"),
            ("amqp://u:secret@h:port", "the port is not a number"),
            ("amqp://u:secret@", "there is no host"),
            ("amqp://u:sec/ret@h", "the port is not a number"),
            ("amqp://u:secret@h/", "there is no vhost"),
            ("amqp://u:secret@h/a/b", "the vhost has a `/`"),
            ("amqp://u:secret@h/%ff", "the vhost is not UTF-8"),
            ("amqp://:secret@h", "there is a password, but no user"),
            ("amqp://secret@h", "there is a user, but no password"),
            ("amqp://u:%ffsecret@h", "user or password is not UTF-8"),
            ("amqp://u:secret@h?heartbeat=secret", "the value of \"heartbeat\" does not fit"),
            ("amqp://u:secret@h?hartbeat=1", "\"hartbeat\" is not known"),
            ("amqp://u:secret@h#x", "it has a `#`"),
        ];
        for (url, why) in bad {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            let text = format!("{error} {error:?}");
            assert!(text.contains(why), "{url}: {text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        let address = Address::parse("amqp://user:secret@host/v").unwrap();
        let shown = format!("{address} {address:?}");
        assert!(shown.contains("host:5672") && !shown.contains("secret"), "{shown}");
    }
}
