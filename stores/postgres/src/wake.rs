//! Wake-ups: at once within the process, and by NOTIFY for other processes. Best effort: a worker that misses one finds the
//! work by polling. Tests: `tests/wakeups.rs`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_core::Result;
use oncebox_core::store::Wakeup;
use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::login::Login;
use crate::session::{Sessions, query};
use crate::sql::Namespace;

/// Minimum interval of NOTIFY. It takes a lock that all commits of a database wait for, so it must be rare.
const PAUSE: Duration = Duration::from_millis(5);
/// Delay before the next try to listen.
const AGAIN: Duration = Duration::from_secs(1);

/// Notifies workers of new work. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Waker {
    shared: Arc<Shared>,
}

struct Shared {
    here: watch::Sender<u64>,
    there: Notify,
    /// Time of the next scheduled wake-up.
    later: Mutex<Option<Instant>>,
    channel: String,
    /// Payload of this process's notifications, which its listener ignores.
    me: String,
}

/// The tasks that notify and listen. They end when this is dropped.
#[derive(Default)]
pub(crate) struct Tasks {
    notifying: Mutex<Option<AbortHandle>>,
    listening: Mutex<Option<AbortHandle>>,
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in [self.notifying.get_mut().take(), self.listening.get_mut().take()].into_iter().flatten() {
            task.abort();
        }
    }
}

impl Waker {
    pub(crate) fn new(place: &Namespace) -> Self {
        let shared = Shared {
            here: watch::Sender::new(0),
            there: Notify::new(),
            later: Mutex::default(),
            channel: format!("{}.{}work", place.schema, place.prefix),
            me: uuid::Uuid::now_v7().to_string(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Notifies all processes that there may be work.
    pub(crate) fn work(&self) {
        self.here();
        self.shared.there.notify_one();
    }

    /// Returns channel and payload of a notification that a transaction sends at its commit. This process receives it,
    /// too.
    pub(crate) fn late_event(&self) -> (String, String) {
        (self.shared.channel.clone(), "committed".to_owned())
    }

    /// Notifies this process after `time`.
    pub(crate) fn work_here_after(&self, time: Duration) {
        let at = Instant::now() + time;
        let mut later = self.shared.later.lock();
        if later.is_some_and(|known| known <= at) {
            return;
        }
        *later = Some(at);
        drop(later);
        let waker = self.clone();
        tokio::spawn(async move {
            pause(time).await;
            let mut later = waker.shared.later.lock();
            if *later == Some(at) {
                *later = None;
            }
            drop(later);
            waker.here();
        });
    }

    fn here(&self) {
        self.shared.here.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn subscribe(&self) -> Wakeup {
        oncebox_tokio::wakeup(self.shared.here.subscribe())
    }
}

impl Tasks {
    /// Starts the task that notifies other processes. It uses its own connection, and one NOTIFY for many events.
    pub(crate) fn notify(&self, waker: &Waker, sessions: Sessions, notify: Arc<str>) {
        let shared = Arc::clone(&waker.shared);
        let task = tokio::spawn(async move {
            loop {
                shared.there.notified().await;
                if let Err(error) = send_notify(&shared, &sessions, &notify).await {
                    tracing::debug!(%error, "cannot notify other processes of work");
                }
                pause(PAUSE).await;
            }
        });
        *self.notifying.lock() = Some(task.abort_handle());
    }

    /// Starts the task that listens to other processes, at the first call.
    pub(crate) fn listen(&self, waker: &Waker, login: &Login) {
        let mut listening = self.listening.lock();
        if listening.is_none() {
            let task = tokio::spawn(listen(waker.clone(), login.clone()));
            *listening = Some(task.abort_handle());
        }
    }
}

async fn send_notify(shared: &Shared, sessions: &Sessions, notify: &Arc<str>) -> Result<()> {
    let mut session = sessions.single().await?;
    session.rows(query(notify).bind(shared.channel.clone()).bind(shared.me.clone())).await?;
    session.end().await
}

/// Waits in real time, and not by the injected clock: the pause limits the load on the server.
#[expect(
    clippy::disallowed_methods,
    reason = "how often the server is asked does not depend on the inbox's clock"
)]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Listens on the first host that accepts LISTEN. A standby does not.
async fn listen(waker: Waker, login: Login) {
    for turn in 0_usize.. {
        // Read the login at each attempt: it may have been replaced.
        let hosts = login.current();
        let options = hosts[turn % hosts.len()].clone().application_name("oncebox wakeups");
        if let Err(error) = hear(&waker, &options).await {
            tracing::debug!(%error, "cannot listen for work, polling continues");
        }
        pause(AGAIN).await;
    }
}

/// Listens until the server cannot be reached.
async fn hear(waker: &Waker, options: &PgConnectOptions) -> sqlx::Result<()> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(options.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(&waker.shared.channel).await?;
    loop {
        // The listener has missed notifications from before it listened, or during an interruption.
        waker.here();
        while let Some(event) = listener.try_recv().await? {
            if event.payload() != waker.shared.me {
                waker.here();
            }
        }
    }
}
