//! Erases the content of one message. Tests: the testkit's conformance suite.

use oncebox_core::state::{Operation, Status, erase as decide};
use oncebox_core::store::{ActionResult, EntryView, ErasedIds, ErasureCounts, nothing_to_erase};
use oncebox_core::{Fingerprint, HandlerKey, InboxName, Key, Result};
use uuid::Uuid;

use crate::admin::{self, Operating};
use crate::db::{Db, Released, TouchedQueues};
use crate::row::get;
use crate::session::{PgSession, query};

/// An erasure, with its names. They are read before the caller takes a connection.
pub(crate) struct Erasing<'a> {
    db: &'a Db,
    key: &'a Key,
    inbox: i16,
    handlers: Vec<i16>,
    discard_unfinished: bool,
    /// Entries that were unfinished when the erasure began.
    unfinished: Vec<Operating<'a>>,
}

/// Returns the handlers of a message's unfinished entries.
pub(crate) async fn unfinished(db: &Db, inbox: &InboxName, key: &Key) -> Result<Vec<HandlerKey>> {
    let Some(inbox) = db.known_inbox(inbox).await? else { return Ok(Vec::new()) };
    let handlers = db.handlers_of(inbox).await?;
    let mut session = db.reads().await?;
    let entries = match admin::find(db, &mut session, inbox, key).await? {
        Some(found) => admin::entries(db, &mut session, &handlers, found.seq, key).await?,
        None => Vec::new(),
    };
    session.end().await?;
    Ok(entries.into_iter().filter(is_unfinished).map(|entry| entry.handler).collect())
}

fn is_unfinished(entry: &EntryView) -> bool {
    !matches!(entry.status, Status::Completed | Status::Discarded)
}

impl<'a> Erasing<'a> {
    pub(crate) async fn new(
        db: &'a Db,
        inbox: &'a InboxName,
        (key, discard_unfinished): (&'a Key, bool),
        names: &'a [HandlerKey],
    ) -> Result<Self> {
        // Marks store the name of their inbox, which may have no id yet.
        let inbox_id = db.inbox(inbox).await?;
        let mut unfinished = Vec::with_capacity(names.len());
        for name in names {
            unfinished.push(Operating::new(db, inbox, key, name, Operation::Discard).await?);
        }
        let handlers = db.handlers_of(inbox_id).await?;
        Ok(Self { db, key, inbox: inbox_id, handlers, discard_unfinished, unfinished })
    }

    /// Erases the content. Returns `None` if an entry changed meanwhile.
    pub(crate) async fn attempt(
        &self,
        session: &mut PgSession,
        released: &mut Released,
    ) -> Result<Option<ErasureCounts>> {
        let Self { db, key, inbox, .. } = *self;
        let found = admin::find(db, session, inbox, key).await?;
        let (digest, mut discarded) = (key.as_bytes().to_vec(), 0);
        if let Some(found) = &found {
            // The lock order of every caller: first all lines at once, then the key.
            let mut lines = TouchedQueues::default();
            for one in &self.unfinished {
                if let Some((lane, handler, order)) = one.line(session, found.seq).await? {
                    lines.add(lane, handler, order);
                }
            }
            if !lines.is_empty() {
                lines.lock(db, session).await?;
            }
            let hold = query(&db.sql.admin_hold).bind(db.lane_of(key)).bind(digest.clone());
            match session.rows(hold).await?.first() {
                Some(row) if get::<i64>(row, 0)? == found.seq.0 => {}
                _ => return Ok(None),
            }
            // Decide everything before the first change.
            let mut chosen = Vec::new();
            for entry in admin::entries(db, session, &self.handlers, found.seq, key).await? {
                if decide(entry.status, self.discard_unfinished)?.is_some() {
                    // The entry is new, so its line is not locked.
                    let Some(one) = self.unfinished.iter().find(|one| one.is_for(&entry)) else {
                        return Ok(None);
                    };
                    chosen.push(one);
                }
            }
            for one in &chosen {
                if one.attempt(session, released).await?.is_none() {
                    return Ok(None);
                }
            }
            discarded = chosen.len();
        }
        let erase = query(&db.sql.erase)
            .bind(db.lane_of(key))
            .bind(digest.clone())
            .bind(inbox)
            .bind(found.as_ref().map(|found| found.seq.0))
            .bind(Fingerprint::ERASED.as_bytes().to_vec());
        let rows = session.rows(erase).await?;
        let (mut quarantined, mut marked, mut ids) = (0, false, ErasedIds::default());
        if let Some(row) = rows.first() {
            (quarantined, marked) = (get::<i64>(row, 0)?, get::<bool>(row, 1)?);
            let texts = get::<Vec<Vec<u8>>>(row, 2)?.into_iter().chain(get::<Vec<Vec<u8>>>(row, 3)?);
            texts.for_each(|text| ids.add(&text, None));
        }
        if found.is_none() && quarantined == 0 && !marked {
            return Err(nothing_to_erase(key));
        }
        for row in session.rows(query(&db.sql.erase_answers).bind(digest)).await? {
            if let Some(without) = ActionResult::without_content(get(&row, 1)?) {
                let id: Uuid = get(&row, 0)?;
                session.run(query(&db.sql.operation_answer).bind(id).bind(without)).await?;
            }
        }
        if !ids.is_empty() {
            let verbs = ErasedIds::VERBS.map(str::to_owned).to_vec();
            for row in session.rows(query(&db.sql.erase_bodies).bind(inbox).bind(verbs)).await? {
                if let Some(without) = ids.without(get(&row, 1)?) {
                    let id: Uuid = get(&row, 0)?;
                    session.run(query(&db.sql.erase_set_body).bind(id).bind(without)).await?;
                }
            }
        }
        Ok(Some(ErasureCounts::new(discarded, usize::try_from(quarantined).unwrap_or(usize::MAX))))
    }
}
