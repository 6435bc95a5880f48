//! The tenants setting of an inbox, as processes register it. Keys depend on it, so it must not change by accident.

use crate::config::{OnTenantsChange, Tenants};
use crate::error::{Error, ErrorKind, Result};
use crate::name::InboxName;

/// Prefix of an adopted tenant's name in a recorded setting.
const ADOPTS: &str = "adopts:";

/// Tenants setting of an inbox. A store records it when a process first registers, and refuses a process with another one.
/// Otherwise a message that was accepted without a tenant and comes again with one would have another key, and run twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenancy {
    setting: Box<str>,
    on_change: OnTenantsChange,
}

impl Tenancy {
    /// Returns the setting of a process.
    pub fn new(tenants: Tenants) -> Self {
        let setting = match tenants {
            Tenants::Off => "off",
            Tenants::Optional => "optional",
            Tenants::Required => "required",
        };
        Self { setting: setting.into(), on_change: OnTenantsChange::Refuse }
    }

    /// Returns the setting of a process whose messages all have tenants. The adopted tenant has the keys of messages that were
    /// accepted without one.
    pub fn adopting(tenant: &str) -> Self {
        Self { setting: format!("{ADOPTS}{tenant}").into(), on_change: OnTenantsChange::Refuse }
    }

    /// Sets the handling of another recorded setting.
    #[must_use]
    pub fn on_change(mut self, on_change: OnTenantsChange) -> Self {
        self.on_change = on_change;
        self
    }

    /// Returns the text that a store records.
    pub fn setting(&self) -> &str {
        &self.setting
    }

    /// Compares it with the recorded setting. Returns true if the store has to record this one, and an error if the inbox may not
    /// change to it.
    pub fn is_new(&self, inbox: &InboxName, recorded: Option<&str>) -> Result<bool> {
        let Some(recorded) = recorded else { return Ok(true) };
        if *self.setting == *recorded {
            return Ok(false);
        }
        let adopts = recorded == "off" && self.setting.starts_with(ADOPTS);
        if adopts || self.on_change == OnTenantsChange::Accept {
            return Ok(true);
        }
        let what = format!(
            "the inbox {:?} has worked with {} on this store, and this process has {}: a message that was accepted before could \
             come again under another key, and run twice; nothing was changed",
            inbox.as_str(),
            described(recorded),
            described(&self.setting)
        );
        Err(Error::new(ErrorKind::TenantsChanged, what))
    }
}

/// Formats a recorded setting in the words of the configuration.
fn described(setting: &str) -> String {
    match setting.strip_prefix(ADOPTS) {
        Some(tenant) => format!("`tenants` = required and `adopted_tenant` = {tenant:?}"),
        None => format!("`tenants` = {setting}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_changes_only_where_no_key_does_or_where_that_is_accepted() {
        let inbox = InboxName::new("orders").unwrap();
        let [off, optional, required] =
            [Tenants::Off, Tenants::Optional, Tenants::Required].map(Tenancy::new);
        let [acme, globex] = ["acme", "globex"].map(Tenancy::adopting);
        let all = [off, optional, required, acme.clone(), globex];
        for (at, tenancy) in all.iter().enumerate() {
            assert!(tenancy.is_new(&inbox, None).unwrap(), "nothing is recorded yet");
            for (recorded_at, recorded) in all.iter().enumerate() {
                let answer = tenancy.is_new(&inbox, Some(recorded.setting()));
                match (at, recorded_at) {
                    (at, recorded) if at == recorded => assert!(!answer.unwrap()),
                    // The keys of messages without a tenant stay, and the named tenant has them.
                    (3.., 0) => assert!(answer.unwrap()),
                    _ => assert_eq!(answer.unwrap_err().kind(), ErrorKind::TenantsChanged),
                }
                let accepting = tenancy.clone().on_change(OnTenantsChange::Accept);
                assert_eq!(accepting.is_new(&inbox, Some(recorded.setting())).unwrap(), at != recorded_at);
            }
        }
        let error = acme.is_new(&inbox, Some("optional")).unwrap_err().to_string();
        for part in ["\"orders\"", "`tenants` = optional", "`adopted_tenant` = \"acme\"", "on_tenants_change"]
        {
            assert!(error.contains(part), "{error}");
        }
    }
}
