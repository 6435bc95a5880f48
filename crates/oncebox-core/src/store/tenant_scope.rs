//! The view of one tenant for operators. Tests: `conformance/tenant.rs` in `oncebox-testkit`.

use super::{
    Acted, Action, BlockedKey, BlockedParams, EntryFilter, EntryPage, Explanation, InboxCounts, MessageView,
    Operate, QuarantineFilter, QuarantinePage,
};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::name::InboxName;
use crate::state::Status;

/// View of one tenant for operators. It shows, counts and changes nothing of another tenant.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> oncebox::Result<()> {
/// use oncebox::{InboxName, Memory, store::TenantScope};
///
/// let store = Memory::new();
/// let acme = TenantScope::new(&store, InboxName::new("orders")?, "acme");
/// assert_eq!(acme.count().await?.messages, 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct TenantScope<'a, S> {
    store: &'a S,
    inbox: InboxName,
    tenant: Box<str>,
}

impl<'a, S: Operate> TenantScope<'a, S> {
    /// Returns the view of `tenant` on an inbox.
    pub fn new(store: &'a S, inbox: InboxName, tenant: impl Into<Box<str>>) -> Self {
        Self { store, inbox, tenant: tenant.into() }
    }

    /// Returns the counts of the tenant.
    pub async fn count(&self) -> Result<InboxCounts> {
        self.store.count(&self.inbox, Some(&self.tenant)).await
    }

    /// Returns a filter for the first 100 entries with a status.
    pub fn filter(&self, status: Status) -> EntryFilter {
        EntryFilter { tenant: Some(self.tenant.clone()), ..EntryFilter::new(self.inbox.clone(), status) }
    }

    /// Lists entries. Ignores inbox and tenant of the filter.
    pub async fn list(&self, filter: &EntryFilter) -> Result<EntryPage> {
        let (inbox, tenant) = (self.inbox.clone(), Some(self.tenant.clone()));
        self.store.list(&EntryFilter { inbox, tenant, ..filter.clone() }).await
    }

    /// Returns a filter for the first 100 quarantined messages.
    pub fn quarantine_filter(&self) -> QuarantineFilter {
        QuarantineFilter { tenant: Some(self.tenant.clone()), ..QuarantineFilter::new(self.inbox.clone()) }
    }

    /// Lists quarantined messages. Ignores inbox and tenant of the filter.
    pub async fn quarantined(&self, filter: &QuarantineFilter) -> Result<QuarantinePage> {
        let (inbox, tenant) = (self.inbox.clone(), Some(self.tenant.clone()));
        self.store.quarantined(&QuarantineFilter { inbox, tenant, ..filter.clone() }).await
    }

    /// Lists at most `limit` blocked ordering keys, those with the oldest message in front first.
    pub async fn blocked(&self, limit: usize) -> Result<Vec<BlockedKey>> {
        let (inbox, tenant) = (self.inbox.clone(), Some(self.tenant.clone()));
        self.store.blocked(&BlockedParams { inbox, tenant, limit }).await
    }

    /// Returns everything known of a key.
    pub async fn show(&self, key: &Key) -> Result<Option<MessageView>> {
        let view = self.store.show(&self.inbox, key).await?;
        Ok(view.filter(|view| view.tenant.as_deref() == Some(&*self.tenant)))
    }

    /// Returns everything known of a key, with its history and an explanation for each entry.
    pub async fn explain(&self, key: &Key) -> Result<Option<Explanation>> {
        // Entries ahead have the same ordering key, and so the same tenant.
        let explained = self.store.explain(&self.inbox, key).await?;
        Ok(explained.filter(|explained| explained.view.tenant.as_deref() == Some(&*self.tenant)))
    }

    /// Does an action on one entry and records it. Returns `NotFound` for a key of another tenant, and refuses actions that concern
    /// all tenants. Ignores the inbox of the action.
    pub async fn act(&self, action: &Action) -> Result<Acted> {
        let Some(key) = action.kind.key() else {
            let what = format!("{} concerns more than one tenant", action.kind.verb());
            return Err(Error::new(ErrorKind::Refused, what));
        };
        if self.show(key).await?.is_none() {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no entry of {key}")));
        }
        self.store.act(&Action { inbox: self.inbox.clone(), ..action.clone() }).await
    }
}
