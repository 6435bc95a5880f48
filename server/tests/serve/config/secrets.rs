//! Weak secrets and risky ones.

use super::super::support::oncebox;
use super::SERVE;

/// A configuration, its files with their contents, and the expected problem.
type WeakSecret = (&'static str, &'static [(&'static str, &'static str)], &'static str);

const WEAK: &[WeakSecret] = &[
    (
        "[api.token.ada]\nhash = \"sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\"\nroles = \"admin\"\n[inbox.a]",
        &[],
        "oncebox.toml:2: `api.token.ada.hash`: the token of this hash is empty, very short or a common word; create another one with `oncebox token`",
    ),
    (
        "[api.token.ada]\nhash = \"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"\nroles = \"admin\"\n[inbox.a]",
        &[],
        "oncebox.toml:2: `api.token.ada.hash`: the token of this hash is empty, very short or a common word; create another one with `oncebox token`",
    ),
    (
        "[inbox.a.http.one]\nverify = \"token\"\nsecret = \"file:t\"",
        &[("t", "x")],
        "oncebox.toml:3: `inbox.a.http.one.secret`: a secret of 1 characters is too weak; use 32 random ones, as from `openssl rand -hex 16`",
    ),
    (
        "[inbox.a.http.one]\nverify = \"hmac\"\nsignature_header = \"x-sig\"\nsecret = \"file:t\"",
        &[("t", "aaaaaaaaaaaaaaaaaaaaaaaa")],
        "oncebox.toml:4: `inbox.a.http.one.secret`: a secret of one repeated character is too weak; use `openssl rand -hex 16`",
    ),
    (
        "[inbox.a.http.one]\nformat = \"github\"\nsecret = \"file:t\"\n[inbox.a.http.two]\nformat = \"shopify\"\nsecret = \"file:t\"",
        &[("t", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")],
        "oncebox.toml:6: `inbox.a.http.two.secret`: the source \"one\" has the same secret and another format or verification, so a sender of one can impersonate the other; use different secrets",
    ),
    (
        "[inbox.a.http.one]\nformat = \"github\"\nsecret = \"file:t\"\n[inbox.a.http.two]\nformat = \"standard-webhooks\"\nsecret = \"file:u\"",
        &[("t", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), ("u", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")],
        "oncebox.toml:6: `inbox.a.http.two.secret`: the source \"one\" has the same secret and another format or verification, so a sender of one can impersonate the other; use different secrets",
    ),
    (
        "[inbox.a.http.one]\nformat = \"standard-webhooks\"\nsecret = \"file:t\"",
        &[("t", "whsec_c2hvcnQ=")],
        "oncebox.toml:3: `inbox.a.http.one.secret`: a secret of fewer than 8 bytes behind `whsec_` is too weak; use 32 random ones, as from `openssl rand -base64 32`",
    ),
    (
        "[api.token.ada]\nhash = \"sha256:0c47dd30c7da14ce8078bc464742122187d516456e901ac0c3006dabcec0f743\"\nroles = \"viewer\"\n[inbox.a.http.one]\nverify = \"token\"\nsecret = \"file:t\"",
        &[("t", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")],
        "oncebox.toml:6: `inbox.a.http.one.secret`: the API token \"ada\" is the same secret, so a sender can act as an operator; use different secrets",
    ),
    (
        "[inbox.a.http.one]\nformat = \"standard-webhooks\"\nsecret = \"file:t\"",
        &[("t", "whpk_AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")],
        "oncebox.toml:1: `inbox.a.http.one`: the endpoint \"one\": a Standard Webhooks secret with `whpk_` is a point of small order: anybody can sign for it",
    ),
    (
        "[inbox.a.handler.h]\nurl = \"https://example.com\"\nforward = [\"x-note\", \"Transfer-Encoding\"]",
        &[],
        "oncebox.toml:3: `inbox.a.handler.h.forward`: \"Transfer-Encoding\" is a header of one connection, and could make a handler misread the end of a request; remove it",
    ),
    (
        "[inbox.a.handler.h]\nurl = \"https://example.com\"\nforward = \"host\"",
        &[],
        "oncebox.toml:3: `inbox.a.handler.h.forward`: the host of a delivery is the host of its URL; remove it",
    ),
    (
        "[inbox.a.handler.h]\nurl = \"https://example.com\"\nheaders = { connection = \"x-note\" }",
        &[],
        "oncebox.toml:3: `inbox.a.handler.h.headers`: \"connection\" is a header of one connection, and could make a handler misread the end of a request; remove it",
    ),
    (
        "[store.main]\nurl = \"sqlite:x.db\"\nseal = { keys = {}, fingerprints = \"file:f\" }\n[inbox.a]",
        &[],
        "oncebox.toml:3: `store.main.seal`: no key is configured; add one, like `keys = { \"2026-11\" = \"file:/run/secrets/seal\" }`",
    ),
    (
        "[store.main]\nurl = \"sqlite:x.db\"\n[store.main.seal]\nkeys = { a = \"file:k\", b = \"file:k\" }\nfingerprints = \"file:k\"\nactive = \"c\"\n[inbox.a]",
        &[("k", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")],
        "oncebox.toml:6: `store.main.seal.active`: unknown key \"c\"; name one of a, b",
    ),
    (
        "[store.main]\nurl = \"sqlite:x.db\"\n[store.main.seal]\nkeys = { a = \"file:k\" }\nfingerprints = \"file:f\"\n[inbox.a]",
        &[("k", "hunter2"), ("f", "cHJpbnRzIHByaW50cyBwcmludHMgcHJpbnRzIDEyMzQ=")],
        "oncebox.toml:4: `store.main.seal.keys`: file:k is not a key: use 32 random bytes in base64 or 64 hexadecimal digits, as from `openssl rand -base64 32`",
    ),
    (
        "[store.main]\nurl = \"sqlite:x.db\"\n[store.main.seal]\nkeys = { a = \"file:f\" }\nfingerprints = \"file:f\"\n[inbox.a]",
        &[("f", "cHJpbnRzIHByaW50cyBwcmludHMgcHJpbnRzIDEyMzQ=")],
        "oncebox.toml:5: `store.main.seal.fingerprints`: `fingerprints` has the value of a key, but keys rotate and it must never change; create another secret",
    ),
];

/// Runs `config check` on a configuration in a directory with these files.
fn said_with_files(config: &str, files: &[(&str, &str)]) -> (Option<i32>, String) {
    said_by(&["config", "check"], config, files)
}

fn said_by(command: &[&str], config: &str, files: &[(&str, &str)]) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("oncebox.toml"), config).unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let output = oncebox(dir.path(), command);
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap().trim().to_owned())
}

#[test]
fn weak_secrets_are_refused() {
    for (config, files, expected) in WEAK {
        for command in [&["config", "check"], SERVE] {
            let (code, said) = said_by(command, config, files);
            assert_eq!((code, said.as_str()), (Some(2), &*format!("oncebox: {expected}")), "{config}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}

#[test]
fn risky_secrets_get_a_warning() {
    let shared = "[inbox.a.http.one]\nformat = \"github\"\nsecret = \"file:t\"\n[inbox.a.http.two]\nformat = \"github\"\nsecret = \"file:t\"";
    let (code, said) = said_with_files(shared, &[("t", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the sources \"one\" and \"two\" have the same secret"), "{said}");
    let short = "[inbox.a.http.one]\nformat = \"github\"\nsecret = \"file:t\"";
    let (code, said) = said_with_files(short, &[("t", "tr0ub4dor")]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("a secret of the source \"one\" has fewer than 16 characters"), "{said}");
    let ours = "[inbox.a.http.one]\nformat = \"standard-webhooks\"\nsecret = \"file:t\"\n\
                [inbox.a.handler.h]\nurl = \"https://example.com\"\nsecret = \"file:t\"";
    let (code, said) = said_with_files(ours, &[("t", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the handler \"h\" and the source \"one\" have the same secret"), "{said}");
    // While a secret is replaced, a source has two.
    let two = "[inbox.a.http.one]\nformat = \"github\"\nsecret = [\"file:t\", \"file:u\"]";
    let files = [("t", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), ("u", "oM7SL5zyW6q0Jx4mUPD8ILPZIo2LaLaS")];
    let (code, said) = said_with_files(two, &files);
    assert_eq!((code, said.as_str()), (Some(0), "oncebox.toml: valid; inboxes: 1, handlers: 0"));
    let plain = "[store.main]\nurl = \"sqlite:x.db\"\n[store.main.seal]\nkeys = { a = \"file:k\" }\nfingerprints = \"file:f\"\n\
                 plaintext = \"read\"\n[inbox.a]";
    let files = [
        ("k", "Zmlyc3QgZmlyc3QgZmlyc3QgZmlyc3QgZmlyc3QgMTI="),
        ("f", "cHJpbnRzIHByaW50cyBwcmludHMgcHJpbnRzIDEyMzQ="),
    ];
    let (code, said) = said_with_files(plain, &files);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("store main: `seal.plaintext` is \"read\""), "{said}");
}
