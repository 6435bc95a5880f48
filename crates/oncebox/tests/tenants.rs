//! Tenants on every way in: whether they are allowed, and that two of them never meet.

mod support;

use oncebox::config::{OnTenantsChange, Tenants};
use oncebox::source::{Ack, channel};
use oncebox::state::{Operation, Status};
use oncebox::store::{Action, ActionKind, Mark, TenantScope, Transactional as _};
use oncebox::{
    Accepted, Config, Dedupe, Error, ErrorKind, HandlerKey, KeyStrategy, Message, Processed, Receipt,
};
use support::{Testbed, counts, in_time, message};

fn setup(tenants: Tenants) -> Testbed {
    Testbed::new(|inbox, script| {
        inbox
            .config(Config { tenants, ..Config::default() })
            .on("t", script.handler("h"))
            .on("now", script.handler("now").inline())
    })
}

/// Another process on the same store, after its configuration was changed.
fn after(before: &Testbed, config: Config) -> Testbed {
    Testbed::over(before.store().clone(), before.clock.clone(), |inbox, script| {
        inbox.config(config).on("t", script.handler("h")).on("now", script.handler("now").inline())
    })
}

fn adopting(tenant: &str) -> Config {
    Config { tenants: Tenants::Required, adopted_tenant: Some(tenant.into()), ..Config::default() }
}

// The redelivery of a message from before tenants, which names its tenant now, is not a new message.
#[tokio::test]
async fn what_was_accepted_without_a_tenant_belongs_to_the_adopted_one() {
    let before = setup(Tenants::Off);
    let plain = |id: &str| message(id, "ok").with_source("shop");
    let inline = || Message::new("1", "now", "ok");
    before.inbox.accept(plain("1")).await.unwrap();
    assert_eq!(before.inbox.process(inline()).await.unwrap(), Processed::Done);
    let mut tx = before.store().begin().await.unwrap();
    assert_eq!(before.inbox.once(&mut tx, &plain("1"), "once").await.unwrap(), Mark::First);
    before.store().commit(tx).await.unwrap();
    before.inbox.drain().await.unwrap();

    let setup = after(&before, adopting("a"));
    assert!(matches!(setup.inbox.accept(of("a", "1")).await.unwrap(), Accepted::Duplicate(_)));
    assert!(matches!(setup.inbox.accept(of("b", "1")).await.unwrap(), Accepted::First(_)));
    assert_eq!(setup.inbox.process(now("a", "1")).await.unwrap(), Processed::Duplicate);
    assert_eq!(setup.inbox.process(now("b", "1")).await.unwrap(), Processed::Done);
    let mut tx = setup.store().begin().await.unwrap();
    assert_eq!(setup.inbox.once(&mut tx, &of("a", "1"), "once").await.unwrap(), Mark::Duplicate);
    assert_eq!(setup.inbox.once(&mut tx, &of("b", "1"), "once").await.unwrap(), Mark::First);
    setup.store().commit(tx).await.unwrap();

    // A process from before the change, in a rolling deploy.
    setup.inbox.accept(of("a", "2")).await.unwrap();
    assert!(matches!(before.inbox.accept(plain("2")).await.unwrap(), Accepted::Duplicate(_)));
    let key = |id| setup.inbox.key_of(&of("a", id), "h").unwrap().unwrap();
    assert_eq!(key("1"), before.inbox.key_of(&plain("1"), "h").unwrap().unwrap());
    setup.inbox.drain().await.unwrap();
    assert_eq!((before.script.runs("h", "1"), setup.script.runs("h", "1")), (1, 1), "once for each tenant");
}

#[tokio::test]
async fn a_changed_tenants_setting_is_refused_on_every_way_in_until_it_is_accepted() {
    let before = setup(Tenants::Off);
    before.accept("1", "ok").await;
    let required = Config { tenants: Tenants::Required, ..Config::default() };
    let changed = after(&before, required.clone());
    let mut refused = vec![changed.inbox.register().await.unwrap_err()];
    refused.extend(changed.inbox.accept(of("a", "1")).await.err());
    refused.extend(changed.inbox.accept_batch([of("a", "1")]).await.err());
    refused.extend(changed.inbox.receive(of("a", "1")).await.err());
    refused.extend(changed.inbox.process(now("a", "1")).await.err());
    refused.extend(changed.inbox.drain().await.err());
    assert_eq!(refused.len(), 6, "{refused:?}");
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::TenantsChanged);
        for part in ["`tenants` = off", "`tenants` = required", "`adopted_tenant`", "`on_tenants_change`"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
    assert_eq!(changed.script.log().len(), 0);
    before.inbox.drain().await.unwrap();

    let accepted = after(&before, Config { on_tenants_change: OnTenantsChange::Accept, ..required });
    accepted.inbox.register().await.unwrap();
    assert!(matches!(accepted.inbox.accept(of("a", "1")).await.unwrap(), Accepted::First(_)));
    assert_eq!(setup(Tenants::Off).inbox.register().await.map_err(|error| error.kind()), Ok(()));
    let back = after(&before, Config::default()).inbox.register().await.unwrap_err();
    assert_eq!(back.kind(), ErrorKind::TenantsChanged);
}

fn of(tenant: &str, id: &str) -> Message {
    message(id, "ok").with_source("shop").with_tenant(tenant)
}

fn now(tenant: &str, id: &str) -> Message {
    Message::new(id.to_owned(), "now", "ok").with_tenant(tenant)
}

async fn refusals(setup: &Testbed, bad: &Message) -> Vec<Error> {
    let batch = setup.inbox.accept_batch([bad.clone()]).await.expect("the store answers");
    let mut tx = setup.store().begin().await.expect("the store answers");
    let mut refusals: Vec<Error> = batch.into_iter().filter_map(Result::err).collect();
    refusals.extend(setup.inbox.accept(bad.clone()).await.err());
    refusals.extend(setup.inbox.receive(bad.clone()).await.err());
    refusals.extend(setup.inbox.process(bad.clone()).await.err());
    refusals.extend(setup.inbox.once(&mut tx, bad, "h").await.err());
    refusals.extend(setup.inbox.key_of(bad, "h").err());
    refusals
}

// FAULTS S4, S20: neither mixed up silently nor taken without its owner.
#[tokio::test]
async fn a_tenant_where_there_is_none_and_none_where_there_must_be_one_are_refused() {
    for (tenants, bad, value) in [
        (Tenants::Off, of("a", "1"), "names the tenant \"a\", and `tenants` is Off"),
        (Tenants::Required, message("1", "ok"), "names no tenant, and `tenants` is Required"),
    ] {
        let setup = setup(tenants);
        let refused = refusals(&setup, &bad).await;
        assert_eq!(refused.len(), 6);
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::Tenant);
            assert!(
                error.what().contains(value) && error.to_string().contains("change `tenants`"),
                "{error}"
            );
        }
        let running = setup.inbox.start();
        let (sender, source) = channel("source", 1);
        running.receive(source).unwrap();
        let ack = in_time(sender.deliver(bad)).await.unwrap();
        assert!(matches!(&ack, Ack::Reject { reason } if reason.contains(value)), "{ack:?}");
        assert_eq!(counts(&setup.inbox).await.messages, 0);
    }
}

// FAULTS G5, S4, S20
#[tokio::test]
async fn the_same_source_and_id_of_two_tenants_never_meet() {
    for tenants in [Tenants::Optional, Tenants::Required] {
        let setup = setup(tenants);
        for tenant in ["a", "b"] {
            let accept = async || setup.inbox.accept(of(tenant, "1")).await.unwrap();
            assert!(matches!(accept().await, Accepted::First(_)), "{tenant}");
            assert!(matches!(accept().await, Accepted::Duplicate(_)), "{tenant}");
            assert_eq!(setup.inbox.process(now(tenant, "1")).await.unwrap(), Processed::Done);
            assert_eq!(setup.inbox.process(now(tenant, "1")).await.unwrap(), Processed::Duplicate);
            assert_eq!(setup.inbox.receive(now(tenant, "1")).await.unwrap(), Receipt::Done);
            let mut tx = setup.store().begin().await.unwrap();
            assert_eq!(setup.inbox.once(&mut tx, &of(tenant, "1"), "other").await.unwrap(), Mark::First);
            setup.store().commit(tx).await.unwrap();
        }
        assert_eq!(setup.inbox.drain().await.unwrap(), 2);
        assert_eq!((setup.script.runs("h", "1"), setup.script.runs("now", "1")), (2, 2));
    }
    let setup = setup(Tenants::Optional);
    setup.inbox.accept(of("a", "1")).await.unwrap();
    let nobodys = setup.inbox.accept(message("1", "ok").with_source("shop")).await.unwrap();
    assert!(matches!(nobodys, Accepted::First(_)), "none is by itself");
}

// FAULTS G5: whatever the key is made of.
#[test]
fn every_strategy_keeps_tenants_apart() {
    let strategies = [
        KeyStrategy::MessageId,
        KeyStrategy::message_id_header(),
        KeyStrategy::correlation_id(),
        KeyStrategy::handler_and_correlation_id(),
        KeyStrategy::json_pointer("/order"),
        KeyStrategy::Content,
        KeyStrategy::cloud_events(),
        KeyStrategy::custom(|_| Some(b"x".to_vec())),
        KeyStrategy::custom_with(|_, _| Some(b"x".to_vec())),
    ];
    for strategy in strategies {
        for own in [false, true] {
            let setup = Testbed::new(|inbox, script| {
                let tenants = Tenants::Optional;
                let config = if own {
                    Config { tenants, ..Config::default() }
                } else {
                    Config { tenants, key: strategy.clone(), ..Config::default() }
                };
                let handler = script.handler("h");
                let handler = if own { handler.dedupe(Dedupe::By(strategy.clone())) } else { handler };
                inbox.config(config).on("t", handler)
            });
            let message = |tenant: Option<&str>| {
                let message = Message::new("1", "t", r#"{"order":7}"#)
                    .with_header("message-id", "1")
                    .with_header("correlation-id", "1")
                    .with_header("ce-id", "1")
                    .with_header("ce-source", "1");
                tenant.map_or(message.clone(), |tenant| message.with_tenant(tenant))
            };
            let key = |tenant| setup.inbox.key_of(&message(tenant), "h").unwrap().unwrap();
            let keys = [key(None), key(Some("a")), key(Some("b"))];
            assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2], "{strategy:?}");
            assert_eq!(key(Some("a")), keys[1]);
        }
    }
}

#[tokio::test]
async fn an_operator_of_one_tenant_finds_and_mends_its_own_messages_alone() {
    let setup = setup(Tenants::Required);
    for tenant in ["a", "b"] {
        setup.inbox.accept(message("1", "reject no").with_tenant(tenant)).await.unwrap();
    }
    setup.inbox.drain().await.unwrap();
    let [a, b] = ["a", "b"].map(|tenant| TenantScope::new(setup.store(), setup.inbox.name().clone(), tenant));
    let poisoned = a.list(&a.filter(Status::Poisoned)).await.unwrap().entries;
    let [entry] = &poisoned[..] else { panic!("one entry is poisoned: {poisoned:?}") };
    let action = |operation| {
        let handler = HandlerKey::new("h").unwrap();
        Action::new(setup.inbox.name().clone(), ActionKind::Entry { key: entry.key, handler, operation })
    };
    let refused = b.act(&action(Operation::Retry)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    assert!(b.show(&entry.key).await.unwrap().is_none());
    let shown = a.show(&entry.key).await.unwrap().unwrap();
    assert_eq!(shown.tenant.as_deref(), Some("a"));
    a.act(&action(Operation::Discard)).await.unwrap();
    let counted = |counts: oncebox::store::InboxCounts| Status::ALL.map(|status| counts.with_status(status));
    assert_eq!(counted(a.count().await.unwrap()), [0, 0, 0, 0, 1]);
    assert_eq!(counted(b.count().await.unwrap()), [0, 0, 0, 1, 0]);
}

// FAULTS S20: the order of one tenant's messages does not affect other tenants.
#[tokio::test]
async fn a_poisoned_head_of_one_tenant_blocks_no_other() {
    let setup = setup(Tenants::Required);
    let ordered = |tenant: &str, id: &str, play: &str| {
        message(id, play).with_tenant(tenant).with_ordering_key("customer-1")
    };
    for tenant in ["a", "b"] {
        let head = if tenant == "a" { "reject no" } else { "ok" };
        setup.inbox.accept(ordered(tenant, &format!("{tenant}1"), head)).await.unwrap();
        setup.inbox.accept(ordered(tenant, &format!("{tenant}2"), "ok")).await.unwrap();
    }
    setup.inbox.drain().await.unwrap();
    let runs = |id| setup.script.runs("h", id);
    assert_eq!((runs("a1"), runs("a2"), runs("b1"), runs("b2")), (1, 0, 1, 1));
}
