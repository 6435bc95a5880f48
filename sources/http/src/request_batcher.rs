//! Batches the messages of concurrent requests into one store call. Tests: below.

use std::sync::{Arc, OnceLock};

use oncebox::source::{BatchPermit, Batcher};
use oncebox::{Error, ErrorKind, Incoming, Received, Result};
use tokio::sync::oneshot;

use crate::body::BudgetShare;
use crate::ingress::Sink;

/// The batch that messages of one endpoint wait for.
#[derive(Default)]
pub(crate) struct RequestBatcher {
    /// Starts with the first message: before it there may be no runtime.
    calls: OnceLock<Batcher<QueuedMessage>>,
}

struct QueuedMessage {
    message: Incoming,
    /// Held until the message is stored.
    share: BudgetShare,
    answer: oneshot::Sender<Result<Received>>,
}

impl RequestBatcher {
    /// Stores a message without inline handlers. A client that disconnects does not stop this.
    pub(crate) async fn receive(
        &self,
        sink: &Arc<dyn Sink>,
        message: Incoming,
        share: BudgetShare,
    ) -> Result<Received> {
        let calls = self.calls.get_or_init(|| {
            let sink = Arc::clone(sink);
            let bytes = |call: &QueuedMessage| call.message.message().payload().len();
            Batcher::start(bytes, move |calls, turn| store(Arc::clone(&sink), calls, turn))
        });
        let (answer, answered) = oneshot::channel();
        let ended = || Error::new(ErrorKind::Unavailable, "the program ends; the message was not stored");
        calls.push(QueuedMessage { message, share, answer }).map_err(|_| ended())?;
        let lost = || Err(Error::new(ErrorKind::CommitUnknown, "storing the message was cut off"));
        answered.await.unwrap_or_else(|_| lost())
    }
}

async fn store(sink: Arc<dyn Sink>, calls: Vec<QueuedMessage>, _turn: BatchPermit) {
    let (mut messages, mut waiting) = (Vec::with_capacity(calls.len()), Vec::with_capacity(calls.len()));
    for QueuedMessage { message, share, answer } in calls {
        messages.push(message);
        waiting.push((share, answer));
    }
    for (received, (share, answer)) in sink.receive_each(messages).await.into_iter().zip(waiting) {
        drop(share);
        // A client that disconnected learns the outcome when it retries.
        let _ = answer.send(received);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Budget;
    use async_trait::async_trait;
    use oncebox::Message;

    /// Returns an error with the name of each message, and panics on a message named `bug`.
    struct Echo;

    #[async_trait]
    impl Sink for Echo {
        async fn receive(&self, _: Vec<Incoming>) -> Result<Vec<Result<Received>>> {
            Ok(Vec::new())
        }

        async fn receive_each(&self, messages: Vec<Incoming>) -> Vec<Result<Received>> {
            let id = |one: &Incoming| String::from_utf8_lossy(one.message().id()).into_owned();
            assert!(!messages.iter().any(|message| id(message) == "bug"), "a store with a bug");
            messages.iter().map(|message| Err(Error::new(ErrorKind::Full, id(message)))).collect()
        }

        fn incoming(&self, message: Message) -> Incoming {
            message.into()
        }

        fn only_stores(&self, _: &Message) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn each_of_many_gets_its_own_answer_and_gives_its_share_back() {
        let (together, budget) = (Arc::<RequestBatcher>::default(), Budget::new(1_000));
        let sink: Arc<dyn Sink> = Arc::new(Echo);
        let ask = |id: String| {
            let (together, sink, share) =
                (Arc::clone(&together), Arc::clone(&sink), BudgetShare::none(&budget));
            async move { together.receive(&sink, Message::new(id, "t", "").into(), share).await }
        };
        let asked: Vec<_> = (0..700).map(|id: usize| tokio::spawn(ask(id.to_string()))).collect();
        for (id, answer) in asked.into_iter().enumerate() {
            let answer = answer.await.expect("no panic");
            assert_eq!(answer.err().map(|error| error.what().to_owned()), Some(id.to_string()));
        }
        let cut_off = ask("bug".to_owned()).await.err().map(|error| error.kind());
        assert_eq!(cut_off, Some(ErrorKind::CommitUnknown), "the outcome is unknown");
        assert_eq!(ask("1".to_owned()).await.err().map(|error| error.kind()), Some(ErrorKind::Full));
        assert_eq!(Arc::strong_count(&budget), 1, "no share is held");
    }
}
