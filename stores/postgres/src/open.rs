//! Opens a store: connects, checks the schema, and starts its tasks. Tests: `tests/connections.rs`.

use std::sync::Arc;

use oncebox_core::{Error, ErrorKind, Result};
use uuid::Uuid;

use crate::db::Db;
use crate::session::query;
use crate::sql::{FIXED, Statements};
use crate::timeline::Timeline;
use crate::wake::{Tasks, Waker};
use crate::writer::BatchWriter;
use crate::{Inner, Postgres, PostgresOptions, accept, cursors, error, names, options, row, vacuum};

impl PostgresOptions {
    /// Connects, checks the schema and starts the store's tasks.
    pub async fn open(self) -> Result<Postgres> {
        self.check()?;
        self.opened().await.map_err(error::at_start)
    }

    async fn opened(mut self) -> Result<Postgres> {
        // Two stores that are opened with the same options must not share a login.
        self.login = self.login.unshared();
        let sql = Statements::new(&self.plan.place);
        self.refuse_transaction_mode().await?;
        self.apply_if_asked(&sql).await?;
        let timeline = Timeline::new(&sql, self.clock.clone());
        let control = self.control(&timeline);
        let (lanes, incarnation) = {
            let mut session = control.single().await?;
            let recovering = session.rows(sqlx::query(FIXED.schema_recovering)).await?;
            if recovering.first().map_or(Ok(false), |row| row::get(row, 0))? {
                let what = "this PostgreSQL server is a standby: it takes no writes, and may lag behind";
                return Err(Error::new(ErrorKind::ReadOnly, what));
            }
            let rows = session.rows(query(&sql.schema_meta)).await?;
            let meta = rows.first().map(|row| Ok((row::get::<i16>(row, 0)?, row::get::<Uuid>(row, 1)?)));
            let meta = meta.transpose()?;
            session.end().await?;
            meta.ok_or_else(|| error::corrupt("the table of what all messages share is empty"))?
        };
        let (notify, waker) = (Arc::clone(&sql.wake_notify), Waker::new(&self.plan.place));
        let db = Arc::new(Db {
            sql,
            control,
            reads: self.reads(),
            names: names::NameCache::default(),
            cursors: cursors::Cursors::default(),
            duplicate_expectation: accept::DuplicateExpectation::default(),
            vacuum: vacuum::VacuumSchedule::new(self.clock.as_ref()),
            timeline: Arc::clone(&timeline),
            waker: waker.clone(),
            clock: self.clock.clone(),
            lanes,
            incarnation: incarnation.to_string().into(),
            lock_class: options::lock_class("order", &self.plan.place),
            open_class: options::lock_class("open", &self.plan.place),
        });
        timeline.belongs_to(&db);
        let tasks = Tasks::default();
        if !self.pooled {
            tasks.notify(&waker, self.wakeups(), notify);
        }
        let writer = BatchWriter::start(
            Arc::clone(&db),
            self.ingest(&timeline),
            waker.clone(),
            self.partitions.clone(),
        );
        let partitions = self.partitions.clone();
        let inner =
            Inner { db, handlers: self.for_handlers(), writer, waker, tasks, partitions, options: self };
        Ok(Postgres { inner: Arc::new(inner) })
    }
}
