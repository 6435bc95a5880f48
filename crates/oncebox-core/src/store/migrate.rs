//! Schema migrations of a store.

use std::borrow::Cow;

use async_trait::async_trait;

use crate::error::Result;

/// One migration of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Schema version after it.
    pub version: u32,
    /// Purpose.
    pub name: &'static str,
    /// SQL that it runs.
    pub sql: Cow<'static, str>,
}

/// Store with a schema.
#[async_trait]
pub trait Migrate: Send + Sync {
    /// Returns the schema version of the database. 0 if there is none.
    async fn current(&self) -> Result<u32>;

    /// Returns the missing migrations, in order. Their SQL is the plan.
    async fn pending(&self) -> Result<Vec<Migration>>;

    /// Applies the missing migrations and returns them. Of two concurrent callers, one applies them.
    async fn apply(&self) -> Result<Vec<Migration>>;
}
