//! Sources, and guarantees for handlers.

use super::support::{AT_ONCE, Receiver, Reply, Sidecar, one_handler, post, request};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// One sidecar verifies the signature of another after Standard Webhooks.
#[test]
fn a_signed_delivery_is_verified_by_a_receiver_of_standard_webhooks() {
    let last = Receiver::good();
    let second = Sidecar::with_env(
        &format!(
            "{}[inbox.orders.http.hooks]\nformat = \"standard-webhooks\"\nsecret = \"env:IN\"\ntype = \"hook\"\n",
            one_handler(&last.url(), AT_ONCE)
        ),
        &[("IN", SECRET)],
    );
    let url = second.url("hooks");
    let first = Sidecar::with_env(
        &one_handler(&url, &format!("{AT_ONCE}secret = [\"env:OUT\"]")),
        &[("OUT", SECRET)],
    );
    post(&first.url("orders"), "evt_1", "order.placed", r#"{"order":7}"#);
    first.wait_words(&["delivered", "order.placed evt_1"]);
    let request = &last.wait_for(1)[0];
    assert_eq!(request.body, br#"{"order":7}"#);
    // The signed id is the message id at the receiver, so that it recognises duplicates.
    assert_eq!(request.id().len(), 40, "{request:?}");

    let wrong = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let forger =
        Sidecar::with_env(&one_handler(&url, &format!("{AT_ONCE}secret = [\"env:OUT\"]")), &[("OUT", wrong)]);
    post(&forger.url("orders"), "evt_2", "order.placed", "{}");
    forger.wait_words(&["failed", "order.placed evt_2", "401"]);
    assert_eq!(last.requests().len(), 1);
}

#[test]
fn a_token_is_required() {
    let config = "[inbox.orders.http.shop]\nverify = \"token\"\nsecret = [\"env:NEW\", \"env:OLD\"]\n";
    let sidecar =
        Sidecar::with_env(config, &[("NEW", "new-token-new-token-1"), ("OLD", "old-token-old-token-1")]);
    let send = |id: &str, token: Option<&str>| {
        let token = token.map(|token| format!("Bearer {token}"));
        let mut headers = vec![("message-id", id), ("message-type", "t")];
        headers.extend(token.as_deref().map(|token| ("authorization", token)));
        request("POST", &sidecar.url("shop"), &headers, b"{}").unwrap().status
    };
    assert_eq!(send("1", Some("new-token-new-token-1")), 202);
    assert_eq!(send("2", Some("old-token-old-token-1")), 202);
    assert_eq!(send("3", Some("other")), 401);
    assert_eq!(send("4", None), 401);
    let lines = sidecar.stop();
    assert!(lines.iter().all(|line| !line.contains("-token-")), "J4: {lines:#?}");
}

#[test]
fn messages_with_one_ordering_key_are_delivered_one_after_the_other() {
    let handler = Receiver::new(|request| match (request.id(), request.header("oncebox-attempt")) {
        ("a1", "1" | "2") => Reply::status(500),
        _ => Reply::status(200),
    });
    let config = one_handler(&handler.url(), AT_ONCE)
        .replace("[inbox.orders]", "[inbox.orders]\norder = { pointer = \"/customer\" }");
    let sidecar = Sidecar::with(&config);
    for (id, customer) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")] {
        post(&sidecar.url("orders"), id, "t", &format!("{{\"customer\":\"{customer}\"}}"));
    }
    handler.wait_for(6);
    sidecar.wait_count("delivered", 4);
    let of_a: Vec<String> = handler
        .requests()
        .iter()
        .map(|request| request.id().to_owned())
        .filter(|id| id.starts_with('a'))
        .collect();
    assert_eq!(of_a, ["a1", "a1", "a1", "a2", "a3"]);
    assert!(handler.requests().iter().all(|request| !request.header("oncebox-ordering-key").is_empty()));
}

#[test]
fn handlers_get_their_types_and_their_own_duplicates() {
    let (orders, all) = (Receiver::good(), Receiver::good());
    let config = format!(
        "allow_private = true\n[inbox.shop]\n[inbox.shop.handler.orders]\nurl = \"{}\"\ntypes = \"order.*\"\nkey = {{ pointer = \"/order\" }}\n\
         [inbox.shop.handler.all]\nurl = \"{}\"\nheaders = {{ x-key = \"env:KEY\" }}\n",
        orders.url(),
        all.url()
    );
    let sidecar = Sidecar::with_env(&config, &[("KEY", "canary-key")]);
    for (id, kind) in [("1", "order.placed"), ("2", "order.placed"), ("3", "mail")] {
        post(&sidecar.url("shop"), id, kind, r#"{"order":7}"#);
    }
    sidecar.wait_count("delivered", 4);
    let ids = |receiver: &Receiver| {
        let mut ids: Vec<String> =
            receiver.requests().iter().map(|request| request.id().to_owned()).collect();
        ids.sort();
        ids
    };
    assert_eq!((ids(&orders), ids(&all)), (vec!["1".to_owned()], vec!["1".into(), "2".into(), "3".into()]));
    assert!(all.requests().iter().all(|request| request.header("x-key") == "canary-key"));
    let lines = sidecar.stop();
    assert!(lines.iter().all(|line| !line.contains("canary")), "{lines:#?}");
}

/// A sender is told what happened for each handler, and `422` only if no handler took the message.
#[test]
fn the_answer_of_a_sidecar_names_each_handler() {
    let (pay, saga) = (Receiver::good(), Receiver::good());
    let config = format!(
        "allow_private = true\n[inbox.shop]\n[inbox.shop.handler.pay]\nurl = \"{}\"\n\
         [inbox.shop.handler.saga]\nurl = \"{}\"\nkey = {{ pointer = \"/order\", on_conflict = \"quarantine\" }}\n",
        pay.url(),
        saga.url()
    );
    let sidecar = Sidecar::with(&config);
    let send = |id: &str, body: &str| post(&sidecar.url("shop"), id, "t", body);
    let outcome = |answer: &super::support::HttpReply| {
        let answer = answer.json();
        let mut all = vec![answer["outcome"].as_str().expect("an outcome").to_owned()];
        for handler in answer["handlers"].as_array().into_iter().flatten() {
            all.push(format!(
                "{} {}",
                handler["handler"].as_str().expect("a key"),
                handler["outcome"].as_str().expect("a word")
            ));
        }
        all.join(", ")
    };
    let first = send("1", r#"{"order":7}"#);
    assert_eq!((first.status, &*outcome(&first)), (202, "accepted"));
    let mixed = send("2", r#"{"order":7,"more":true}"#);
    assert_eq!((mixed.status, &*outcome(&mixed)), (202, "accepted, pay first, saga conflict"));
    let again = send("2", r#"{"order":7,"more":true}"#);
    assert_eq!((again.status, &*outcome(&again)), (200, "duplicate, pay duplicate, saga conflict"));
    let refused = send("1", r#"{"order":7,"more":true}"#);
    assert_eq!(refused.status, 422, "no handler took it: {refused:?}");
    pay.wait_for(2);
    saga.wait_for(1);
    sidecar.stop();
    assert_eq!((pay.requests().len(), saga.requests().len()), (2, 1));
}

#[test]
fn inboxes_and_stores_of_one_process_are_independent() {
    let handler = Receiver::good();
    let config = format!(
        "allow_private = true\n[store.one]\nurl = \"sqlite:one.db\"\n[store.two]\nurl = \"sqlite:two.db\"\n\
         [inbox.orders]\nstore = \"one\"\n[inbox.orders.handler.h]\nurl = \"{0}\"\n\
         [inbox.mails]\nstore = \"two\"\n[inbox.mails.handler.h]\nurl = \"{0}\"\n\
         [inbox.bills]\nstore = \"two\"\n[inbox.bills.handler.h]\nurl = \"{0}\"\n",
        handler.url()
    );
    let sidecar = Sidecar::with(&config);
    for inbox in ["orders", "mails", "bills"] {
        assert_eq!(post(&sidecar.url(inbox), "1", "t", "{}").status, 202);
        assert_eq!(post(&sidecar.url(inbox), "1", "t", "{}").status, 200);
    }
    handler.wait_for(3);
    for file in ["one.db", "two.db"] {
        assert!(sidecar.dir.path().join(file).exists());
    }
    sidecar.stop();
    let mut inboxes: Vec<String> =
        handler.requests().iter().map(|request| request.header("oncebox-inbox").to_owned()).collect();
    inboxes.sort();
    assert_eq!(inboxes, ["bills", "mails", "orders"]);
}

/// FAULTS F9: an unavailable broker does not delay other sources.
#[test]
fn the_process_starts_without_its_broker() {
    let handler = Receiver::good();
    let config = format!(
        "{}[inbox.orders.http.shop]\n[inbox.orders.rabbitmq.warehouse]\nurl = \"env:AMQP\"\nqueue = \"q\"\ndiscard_rejected = true\n",
        one_handler(&handler.url(), AT_ONCE)
    );
    let sidecar = Sidecar::with_env(&config, &[("AMQP", "amqp://user:canary-password@127.0.0.1:9/%2f")]);
    sidecar.wait_words(&["RabbitMQ"]);
    assert_eq!(post(&sidecar.url("shop"), "1", "t", "{}").status, 202);
    handler.wait_for(1);
    let lines = sidecar.stop();
    assert!(lines.iter().all(|line| !line.contains("canary")), "J4: {lines:#?}");
}
