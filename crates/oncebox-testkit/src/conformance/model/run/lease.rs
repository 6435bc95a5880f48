//! Steps that lease entries, and the claims that were made.

use std::time::Duration;

use oncebox::HandlerKey;
use oncebox::state::Status;
use oncebox::store::{Claim, ClaimMode, Claimed, Store as _};

use super::super::inbox_model::{ModelEntry, is_ordered};
use super::super::step::{Lost, spelled};
use super::{Checked, EntryId, ModelRun, check, failed, key};
use crate::fixture::{LEASE, claims, handler};
use crate::harness::{claim_params, rescue_params};
use crate::{StoreUnderTest, StoreVerb};

impl<S: StoreUnderTest> ModelRun<'_, S> {
    pub(super) async fn claim(
        &mut self,
        (name, renames): (&'static str, usize),
        limit: usize,
        suspect: bool,
        lost: Lost,
    ) -> Checked<Vec<(Claim, EntryId)>> {
        let route = spelled(name, renames);
        let mut params = claim_params(std::slice::from_ref(&route), limit);
        params.inbox = self.inbox.clone();
        // An odd limit stands for an idle worker.
        let idle = suspect && limit % 2 == 1;
        let params = if suspect { params.suspect().idle(idle) } else { params };
        let (claimed, _) =
            self.call(StoreVerb::Claim, lost, async |store| store.claim(&params).await).await?;
        let claimed = claimed.map_err(failed("claim"))?;
        self.check_claim(name, (params.mode, lost), limit, &claimed)?;
        let alone = idle && claimed.len() == 1;
        self.lease(name, &route.key, claimed, Some(alone))
    }

    /// Checks that exactly the claimable entries were claimed, the longest due first.
    fn check_claim(
        &self,
        name: &str,
        (mode, lost): (ClaimMode, Lost),
        max: usize,
        claimed: &[Claimed],
    ) -> Checked {
        let due = self.model.claimable(name, mode, self.h.now());
        // After the clock was set back, due entries may stay due, and entries of that time may not be due yet.
        let wrong_clock = self.turned_back > Duration::ZERO;
        let possible = self.model.claimable(name, mode, self.latest);
        let sure = due.iter().filter(|(.., id)| !(wrong_clock && is_ordered(*id))).count();
        let says = || format!("claimed {:?}, claimable are {due:?}, of {possible:?}", claims(claimed));
        let least = if mode == ClaimMode::Suspect { max.min(sure).min(1) } else { max.min(sure) };
        check((least..=max).contains(&claimed.len()), says)?;
        let suspicion = |claimed: &Claimed| claimed.claim.suspicion;
        check(claimed.windows(2).all(|two| suspicion(&two[0]) == suspicion(&two[1])), says)?;
        let company = |claimed: &Claimed| claimed.claim.suspicion.company(1);
        check(claimed.first().is_none_or(|first| claimed.len() <= company(first)), says)?;
        let known = |claimed: &Claimed| possible.iter().any(|(_, seq, _)| *seq == claimed.claim.seq);
        check(claimed.iter().all(known), says)?;
        // Releasing an ordered entry may change its time, so its place among the others is the store's choice.
        let free = wrong_clock || due.iter().any(|(.., id)| is_ordered(*id));
        let mut wanted: Vec<_> = match mode {
            ClaimMode::Healthy => due.iter().take(max).map(|(_, seq, _)| *seq).collect(),
            ClaimMode::Suspect => self.model.company(name, &due, max),
        };
        let mut found: Vec<_> = claimed.iter().map(|one| one.claim.seq).collect();
        if lost == Lost::After {
            // A repeated claim may return its entries in any order.
            wanted.sort_unstable();
            found.sort_unstable();
        }
        check(free || wanted == found, says)
    }

    pub(super) async fn rescue(
        &mut self,
        (name, renames): (&'static str, usize),
        limit: usize,
        lost: Lost,
    ) -> Checked<Vec<(Claim, EntryId)>> {
        let route = spelled(name, renames);
        let mut params = rescue_params(std::slice::from_ref(&route), limit);
        params.inbox = self.inbox.clone();
        let (rescued, _) =
            self.call(StoreVerb::Rescue, lost, async |store| store.rescue(&params).await).await?;
        let rescued = rescued.map_err(failed("rescue"))?;
        let lapsed = self.model.lapsed(name, self.h.now());
        let right = rescued.len() == limit.min(lapsed.len())
            && rescued.iter().all(|rescued| lapsed.contains(&rescued.claim.seq));
        check(right, || format!("rescued {:?}, lapsed are {lapsed:?}", claims(&rescued)))?;
        self.lease(name, &route.key, rescued, None)
    }

    /// Records a claim, which sets how its runs begin, or a rescue, which does not. `known_as` are the handler's keys in the
    /// process.
    fn lease(
        &mut self,
        name: &'static str,
        known_as: &HandlerKey,
        claimed: Vec<Claimed>,
        alone: Option<bool>,
    ) -> Checked<Vec<(Claim, EntryId)>> {
        let (before, now) = (self.last_token, self.h.now());
        let mut leased = Vec::new();
        for Claimed { claim, message } in claimed {
            let id = (message.id().first().copied().unwrap_or(u8::MAX), name);
            let entry =
                self.model.entries.get_mut(&id).ok_or_else(|| format!("{id:?} was never accepted"))?;
            entry.alone = alone.unwrap_or(entry.alone);
            let same = (claim.seq, claim.attempts, claim.suspicion, claim.generation, claim.alone)
                == (entry.seq, entry.attempts, entry.suspicion, entry.generation(), entry.alone);
            let named = claim.handler == *known_as
                && claim.origin == handler(name)
                && claim.key == key(&self.inbox, id.0);
            check(same && named && claim.claimed_at == now, || format!("{id:?} is leased as {claim:?}"))?;
            check(before < Some(claim.token), || format!("{:?} comes after {before:?}", claim.token))?;
            (entry.status, entry.at) = (Status::Running, now.after(LEASE));
            (entry.token, entry.operated) = (Some(claim.token), false);
            self.last_token = self.last_token.max(Some(claim.token));
            leased.push((claim, id));
        }
        self.log_claims(&leased);
        self.claims.extend(leased.iter().cloned());
        Ok(leased)
    }

    fn log_claims(&mut self, leased: &[(Claim, EntryId)]) {
        if let Some(line) = self.log.last_mut() {
            let all: Vec<String> = leased
                .iter()
                .map(|(claim, (id, name))| format!("{id} for {name} as {:?}", claim.token))
                .collect();
            line.push_str(" -> ");
            line.push_str(&all.join(", "));
        }
    }

    /// Returns an earlier claim and its entry.
    pub(super) fn claim_made(&self, ago: usize) -> Option<(Claim, EntryId)> {
        self.claims.iter().rev().nth(ago).cloned()
    }

    /// Returns the entry that a claim holds, if it does.
    pub(super) fn held(&mut self, claim: &Claim, id: EntryId) -> Option<&mut ModelEntry> {
        self.model.entries.get_mut(&id).filter(|entry| entry.is_held_by(claim))
    }
}
