//! Values that handlers need: an owned handle, and `build()` refuses a missing one.

use oncebox::store::Inspect;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oncebox::{
    BatchContext, BoxError, Context, Data, ErrorKind, Inbox, InboxName, Memory, Message, Status,
    batch_handler, handler,
};

#[derive(Debug, Default)]
struct SentMails(AtomicUsize);

struct Absent;

/// Keeps the value while the transaction is in use.
async fn send(_: Message, cx: &mut Context<Memory>) -> Result<(), BoxError> {
    let mailer = cx.data::<SentMails>()?;
    let tx = cx.tx().await?;
    mailer.0.fetch_add(1, Ordering::Relaxed);
    let _ = tx;
    Ok(())
}

#[oncebox::handler(key = "send-all", types = "t", needs(SentMails, Arc<str>))]
async fn send_one(_: Message, cx: &mut Context<Memory>) -> Result<(), BoxError> {
    let (mailer, name): (Data<SentMails>, Data<Arc<str>>) = (cx.data()?, cx.data()?);
    let tx = cx.tx().await?;
    mailer.0.fetch_add(name.len(), Ordering::Relaxed);
    let _ = tx;
    Ok(())
}

async fn send_many(messages: Vec<Message>, cx: &mut BatchContext<Memory>) -> Result<(), BoxError> {
    let mailer = cx.data::<SentMails>()?;
    let tx = cx.tx().await?;
    mailer.0.fetch_add(messages.len(), Ordering::Relaxed);
    let _ = tx;
    Ok(())
}

async fn careless(_: Message, cx: &mut Context<Memory>) -> Result<(), BoxError> {
    cx.data::<Absent>().map(drop).map_err(Into::into)
}

#[tokio::test]
async fn a_value_and_the_transaction_are_used_together() {
    let inbox = Inbox::builder("mails", Memory::new())
        .on("t", handler("send", send).needs::<SentMails>())
        .on("t", batch_handler("send-many", send_many).needs::<SentMails>())
        .register(send_one::registration())
        .data(SentMails::default())
        .data::<Arc<str>>("seven77".into())
        .on("probe", handler("probe", probe))
        .build()
        .unwrap();
    inbox.accept(Message::new("1", "t", "")).await.unwrap();
    assert_eq!(inbox.drain().await.unwrap(), 3);
    inbox.accept(Message::new("2", "probe", "")).await.unwrap();
    assert_eq!(inbox.drain().await.unwrap(), 1);
}

/// All handlers shared one value.
async fn probe(_: Message, cx: &mut Context<Memory>) -> Result<(), BoxError> {
    let mailer = cx.data::<SentMails>()?.clone().into_arc();
    assert_eq!(mailer.0.load(Ordering::Relaxed), 1 + 1 + 7, "{mailer:?}");
    Ok(())
}

#[tokio::test]
async fn what_a_handler_needs_is_checked_at_start() {
    let store = Memory::new();
    let build = |needs: bool| {
        let lax = handler("careless", careless);
        let registration = if needs { lax.needs::<SentMails>().needs::<Absent>() } else { lax };
        Inbox::builder("mails", store.clone()).on("t", registration).data(SentMails::default()).build()
    };
    let error = build(true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    for word in ["\"careless\"", "Absent", "`InboxBuilder::data`"] {
        assert!(error.what().contains(word), "{error}");
    }
    // Without the declaration, each run fails.
    let inbox = build(false).unwrap();
    inbox.accept(Message::new("1", "t", "")).await.unwrap();
    inbox.drain().await.unwrap();
    let key = inbox.key_of(&Message::new("1", "t", ""), "careless").unwrap().unwrap();
    let found = store.show(&InboxName::new("mails").unwrap(), &key).await.unwrap().unwrap();
    assert_eq!((found.entries[0].status, found.entries[0].attempts), (Status::Pending, 1));
}
