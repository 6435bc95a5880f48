//! Messages of requests that are under way at the same time: stored together.

use std::sync::{Arc, OnceLock};

use oncebox::source::{Gather, Turn};
use oncebox::{Error, ErrorKind, Message, Received, Result};
use tokio::sync::oneshot;

use crate::body::Share;
use crate::ingress::Sink;

/// Where the messages of one endpoint wait for each other.
#[derive(Default)]
pub(crate) struct Together {
    /// Begins with the first message: until then there may be no runtime.
    calls: OnceLock<Gather<Call>>,
}

struct Call {
    message: Message,
    /// Held until the message is stored.
    share: Share,
    answer: oneshot::Sender<Result<Received>>,
}

impl Together {
    /// Stores a message that is only to be stored. Whoever goes away does not stop it.
    pub(crate) async fn receive(
        &self,
        sink: &Arc<dyn Sink>,
        message: Message,
        share: Share,
    ) -> Result<Received> {
        let calls = self.calls.get_or_init(|| {
            let sink = Arc::clone(sink);
            let bytes = |call: &Call| call.message.payload().len();
            Gather::start(bytes, move |calls, turn| store(Arc::clone(&sink), calls, turn))
        });
        let (answer, answered) = oneshot::channel();
        let lost = || Error::new(ErrorKind::CommitUnknown, "storing the message was cut off");
        calls.push(Call { message, share, answer }).map_err(|_| lost())?;
        answered.await.unwrap_or_else(|_| Err(lost()))
    }
}

async fn store(sink: Arc<dyn Sink>, calls: Vec<Call>, _turn: Turn) {
    let (mut messages, mut waiting) = (Vec::with_capacity(calls.len()), Vec::with_capacity(calls.len()));
    for Call { message, share, answer } in calls {
        messages.push(message);
        waiting.push((share, answer));
    }
    for (received, (share, answer)) in sink.receive_each(messages).await.into_iter().zip(waiting) {
        drop(share);
        // Whoever has gone away will be told when it sends again.
        let _ = answer.send(received);
    }
}
