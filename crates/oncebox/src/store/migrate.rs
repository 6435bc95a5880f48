//! Bringing a store's schema up to date.

use std::borrow::Cow;

use async_trait::async_trait;

use crate::error::Result;

/// One step of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The schema version after it.
    pub version: u32,
    /// What it is for.
    pub name: &'static str,
    /// What it runs.
    pub sql: Cow<'static, str>,
}

/// A store with a schema.
#[async_trait]
pub trait Migrate: Send + Sync {
    /// The schema version the store has; 0 for none.
    async fn current(&self) -> Result<u32>;

    /// The steps that are missing, in order. Printing their SQL is the plan.
    async fn pending(&self) -> Result<Vec<Migration>>;

    /// Applies what is missing and returns it. Two callers at once do it once.
    async fn apply(&self) -> Result<Vec<Migration>>;
}
