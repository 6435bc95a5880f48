//! What a handler's answer means.

use std::time::{Duration, SystemTime};

use oncebox::{BoxError, Reject, Snooze};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};

/// How much of an answer is read at the most; the connection is closed if there is more.
const MAX_BODY: usize = 64 * 1024;
/// How long to wait for the rest of an answer whose status is known.
const REST: Duration = Duration::from_secs(5);
/// How much of an answer an error quotes, in characters.
const EXCERPT: usize = 200;
/// Nobody is made to wait for longer by a `Retry-After`.
pub(crate) const LONGEST_RETRY_AFTER: Duration = Duration::from_hours(24);
/// Nobody is asked again sooner, whatever a `Retry-After` says.
const SHORTEST_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a 4xx means that has no meaning of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum On4xx {
    /// A failed attempt like any other: most are mended at the other side, and the message is still good.
    #[default]
    Retry,
    /// No retry will help: poisoned at once.
    Poison,
}

/// What follows from an answer: nothing for a good one, otherwise the word for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Done,
    /// Later, uncounted.
    Later(Duration),
    /// A failed attempt.
    Failed,
    /// Never.
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

/// The wait that a `Retry-After` asks for, in seconds or until a time of day; bounded.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        // More digits than a number has is a very long time.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default()
    };
    Some(wait.clamp(SHORTEST_RETRY_AFTER, LONGEST_RETRY_AFTER))
}

/// Reads an answer, and says what it means for the entry.
pub(super) async fn judge(response: Response, on_4xx: On4xx) -> Result<(), BoxError> {
    let (status, location) = (response.status(), location(response.headers()));
    let meaning = meaning(status, response.headers(), on_4xx, SystemTime::now());
    // Read to its end, so that the connection can be used again; what does not come is not waited for.
    let body = tokio::time::timeout(REST, body(response)).await.unwrap_or_default();
    let said = excerpt(&body);
    let text = || match &*said {
        "" => format!("the handler answered {status}{location}"),
        said => format!("the handler answered {status}{location}: {said}"),
    };
    match meaning {
        Meaning::Done => Ok(()),
        Meaning::Later(wait) => {
            tracing::debug!(%status, ?wait, "the handler asked for time; no attempt is counted");
            Err(Snooze(wait).into())
        }
        Meaning::Failed => Err(text().into()),
        Meaning::Never => Err(Reject(text()).into()),
    }
}

/// Where a redirect would lead, for people alone: it is never followed.
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

/// The beginning of what was said, on one line and without anything a terminal would obey.
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
    fn retry_after_is_honoured_in_seconds_and_as_a_date_within_bounds() {
        let later = |seconds| Meaning::Later(Duration::from_secs(seconds));
        for status in [429, 503] {
            let means = |value| means(status, Some(value), On4xx::Poison);
            assert_eq!(means("120"), later(120));
            assert_eq!(means(" 7 "), later(7));
            assert_eq!(means("0"), later(1));
            assert_eq!(means("99999999999999999999999"), Meaning::Later(LONGEST_RETRY_AFTER));
            // One minute after the moment these tests call now.
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
