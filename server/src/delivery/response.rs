//! Maps the response of a handler to the outcome of an attempt. Tests: below and `tests/serve/responses.rs`.

use std::time::{Duration, SystemTime};

use oncebox::{BoxError, Reject, Snooze};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};

/// Maximum bytes of a response to read. The connection is closed if there is more.
const MAX_BODY: usize = 64 * 1024;
/// Time limit for the body of a response.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum characters of a response that an error quotes.
const EXCERPT: usize = 200;
/// Maximum delay that a `Retry-After` can set.
pub(crate) const LONGEST_RETRY_AFTER: Duration = Duration::from_hours(24);
/// Minimum delay that a `Retry-After` can set.
const SHORTEST_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Policy for a 4xx response other than 410 and 429.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum On4xx {
    /// Count a failed attempt: usually the operator of the handler can fix the cause.
    #[default]
    Retry,
    /// Poison the message at once.
    Poison,
}

/// Meaning of a response for the entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Done,
    /// Postponed without counting an attempt.
    Later(Duration),
    /// A failed attempt.
    Failed,
    /// Poisoned.
    Never,
}

pub(super) fn meaning(status: StatusCode, headers: &HeaderMap, on_4xx: On4xx, now: SystemTime) -> Meaning {
    if status.is_success() {
        return Meaning::Done;
    }
    match status {
        StatusCode::GONE => Meaning::Never,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            retry_after(headers, now).map_or(Meaning::Failed, Meaning::Later)
        }
        _ if status.is_client_error() && on_4xx == On4xx::Poison => Meaning::Never,
        _ => Meaning::Failed,
    }
}

/// Returns the delay of a `Retry-After` in seconds or as a date, within the bounds.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        // A number that is too long means the maximum.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default()
    };
    Some(wait.clamp(SHORTEST_RETRY_AFTER, LONGEST_RETRY_AFTER))
}

/// Reads a response and returns the outcome of the attempt.
pub(super) async fn outcome(response: Response, on_4xx: On4xx) -> Result<(), BoxError> {
    let (status, location) = (response.status(), location(response.headers()));
    let meaning = meaning(status, response.headers(), on_4xx, SystemTime::now());
    // Read to the end, so that the connection can be reused.
    let body = tokio::time::timeout(BODY_TIMEOUT, body(response)).await.unwrap_or_default();
    let excerpt = excerpt(&body);
    let text = || match &*excerpt {
        "" => format!("the handler responded with {status}{location}"),
        excerpt => format!("the handler responded with {status}{location}: {excerpt}"),
    };
    match meaning {
        Meaning::Done => Ok(()),
        Meaning::Later(wait) => {
            tracing::debug!(%status, ?wait, "handler asked to retry later");
            Err(Snooze(wait).into())
        }
        Meaning::Failed => Err(text().into()),
        Meaning::Never => Err(Reject(text()).into()),
    }
}

/// Describes the target of a redirect, which is never followed.
fn location(headers: &HeaderMap) -> String {
    let location = headers.get(reqwest::header::LOCATION).map(|value| excerpt(value.as_bytes()));
    location.map_or_else(String::new, |to| format!(" to {to}, and redirects are not followed"))
}

async fn body(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk[..chunk.len().min(MAX_BODY - body.len())]);
        if body.len() >= MAX_BODY {
            break;
        }
    }
    body
}

/// Returns the beginning of a body on one line, without control characters.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * EXCERPT)]);
    let mut words = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
    }
    match words.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(status: u16, retry_after: Option<&str>, on_4xx: On4xx) -> Meaning {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(RETRY_AFTER, value.parse().unwrap());
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        meaning(StatusCode::from_u16(status).unwrap(), &headers, on_4xx, now)
    }

    /// FAULTS C15
    #[test]
    fn each_status_has_its_meaning() {
        let retry = |status| means(status, None, On4xx::Retry);
        for status in [200, 201, 202, 204, 206, 299] {
            assert_eq!(retry(status), Meaning::Done, "{status}");
        }
        for status in
            [300, 301, 302, 304, 307, 308, 400, 401, 404, 408, 409, 422, 429, 500, 502, 503, 504, 599]
        {
            assert_eq!(retry(status), Meaning::Failed, "{status}");
        }
        assert_eq!(retry(410), Meaning::Never);
        for (status, expected) in
            [(400, Meaning::Never), (404, Meaning::Never), (429, Meaning::Failed), (500, Meaning::Failed)]
        {
            assert_eq!(means(status, None, On4xx::Poison), expected, "{status}");
        }
    }

    #[test]
    fn retry_after_applies_in_seconds_and_as_a_date_within_bounds() {
        let later = |seconds| Meaning::Later(Duration::from_secs(seconds));
        for status in [429, 503] {
            let means = |value| means(status, Some(value), On4xx::Poison);
            assert_eq!(means("120"), later(120));
            assert_eq!(means(" 7 "), later(7));
            assert_eq!(means("0"), later(1));
            assert_eq!(means("99999999999999999999999"), Meaning::Later(LONGEST_RETRY_AFTER));
            // One minute after `now`.
            assert_eq!(means("Sun, 06 Nov 1994 08:50:37 GMT"), later(60));
            assert_eq!(means("Sun, 06 Nov 1994 08:00:00 GMT"), later(1), "past");
            assert_eq!(means("Sat, 06 Nov 2094 08:00:00 GMT"), Meaning::Later(LONGEST_RETRY_AFTER));
            for nonsense in ["soon", "-1", "1.5", ""] {
                assert_eq!(means(nonsense), Meaning::Failed, "{nonsense}");
            }
        }
        assert_eq!(means(500, Some("120"), On4xx::Retry), Meaning::Failed);
        assert_eq!(means(404, Some("120"), On4xx::Retry), Meaning::Failed);
    }

    /// C11, S14.
    #[test]
    fn an_excerpt_is_short_and_harmless() {
        assert_eq!(excerpt(b"  no such\r\n\torder  "), "no such order");
        assert_eq!(excerpt(b"\x1b[31mred\x07\0"), "[31mred");
        assert_eq!(excerpt(&[0xff, b'x']), "\u{fffd}x");
        assert_eq!(excerpt("ä".repeat(10_000).as_bytes()).chars().count(), EXCERPT + 1);
        assert_eq!(excerpt(b""), "");
    }
}
