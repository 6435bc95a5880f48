//! No false signature passes, and no header makes an endpoint panic.

use std::path::{Path, PathBuf};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use oncebox::store::Admin as _;
use oncebox::{BoxError, Context, Inbox, Memory, Message, handler};
use oncebox_http::{Encoding, Endpoint, Ingress, Verify};
use oncebox_untrusted_input::{MADE, feed};
use tower::ServiceExt as _;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/signatures")
}

async fn nothing(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

/// Returns an endpoint of each kind with a proof, and secrets outside the corpus.
fn endpoints() -> oncebox::Result<Vec<Endpoint>> {
    let hmac = Verify::hmac_sha256("x-signature", "v1=", Encoding::Hex, ["another secret"])?;
    Ok(vec![
        Endpoint::standard_webhooks(
            "standard",
            ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whpk_AbDoP2e4zMLcSCjGxj8p6t2IBbM6fAW8BzRlGAPbVMo="],
        )?,
        Endpoint::github("github", ["another secret"])?,
        Endpoint::stripe("stripe", ["another secret"])?,
        Endpoint::slack("slack", ["another secret"])?,
        Endpoint::shopify("shopify", ["another secret"])?,
        Endpoint::plain("token").verify(Verify::tokens(["a-token-that-is-never-guessed"])?),
        Endpoint::plain("hmac").verify(hmac),
    ])
}

/// A request as an untrusted client writes it: headers, an empty line, a body.
fn request(path: &str, input: &[u8]) -> Option<Request> {
    let split = input.windows(2).position(|two| two == b"\n\n").unwrap_or(input.len());
    let mut request = Request::post(path);
    for line in input[..split].split(|byte| *byte == b'\n') {
        let colon = line.iter().position(|byte| *byte == b':')?;
        request = request.header(line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
    }
    request.body(Body::from(input.get(split + 2..).unwrap_or_default().to_vec())).ok()
}

async fn status(router: &Router, request: Request) -> u16 {
    match router.clone().oneshot(request).await {
        Ok(answer) => answer.status().as_u16(),
        Err(never) => match never {},
    }
}

// FAULTS F11; S1, S2
#[test]
fn an_untrusted_client_is_refused_and_nothing_is_stored() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let inbox =
        Inbox::builder("in", Memory::new()).on("push", handler("h", nothing)).build().expect("an inbox");
    let endpoints = endpoints().expect("endpoints");
    let paths: Vec<String> = endpoints.iter().map(|endpoint| format!("/in/{}", endpoint.name())).collect();
    let ingress = endpoints.into_iter().fold(Ingress::new(), |ingress, one| ingress.endpoint(one, &inbox));
    let router = ingress.into_router().expect("a router");
    let mut refused = 0;
    feed(&corpus(), 5, MADE / 5, |input| {
        for path in &paths {
            let Some(request) = request(path, input) else { continue };
            let status = runtime.block_on(status(&router, request));
            // Too large or too slow: reported before the proof is checked.
            assert_eq!(status, 401, "{path}");
            refused += 1;
        }
    });
    assert!(refused > MADE / 5, "only {refused} requests were requests");
    let counts = runtime.block_on(inbox.store().count(inbox.name())).expect("counts");
    assert_eq!((counts.messages, counts.quarantined), (0, 0));
}
