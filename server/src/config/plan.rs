//! Turns the settings into a plan: checks values, reads secrets, adds defaults. Tests: `tests/serve/config.rs`.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use oncebox::config::{Limits, MissingKey, OnTenantsChange, ShortWindow, Tenants, Unrouted};
use oncebox::{Breaker, Config, Dedupe, HealthLimits, InboxName, OnPoisoned, Rate, Retry};
use reqwest::{Certificate, Url};

use super::api::ApiPlan;
use super::model::{self, ConfigFile};
use super::problem::{ConfigProblem, nearest};
use super::rules::{KeyLocation, Private};
use super::sources::{HttpPlan, RabbitmqPlan};
use super::stores::{StorePlace, StorePlan};
use super::value::{Guarded, Located, Many, SecretRef, many};
use crate::delivery::{Allowed, HandlerEndpoint, Signer, check_url};

/// Default address for messages.
pub(crate) const LISTEN: &str = "127.0.0.1:8471";
/// Default file of the store.
pub(crate) const DATABASE: &str = "oncebox.db";
/// Default name of the inbox.
pub(crate) const INBOX: &str = "messages";
const TIMEOUT: Duration = Duration::from_secs(30);
const CONCURRENCY: usize = 16;

/// Checked configuration of a sidecar.
#[derive(Debug)]
pub(crate) struct ConfigPlan {
    pub(crate) listen: SocketAddr,
    pub(crate) tls: Option<TlsPlan>,
    /// If the default does not fit.
    pub(crate) connections_per_address: Option<usize>,
    pub(crate) stores: Vec<StorePlan>,
    pub(crate) inboxes: Vec<InboxPlan>,
    /// API for operators, if configured.
    pub(crate) api: Option<ApiPlan>,
    pub(crate) health: HealthLimits,
    /// Warnings to log at start that belong to no inbox.
    pub(crate) warnings: Vec<String>,
}

impl ConfigPlan {
    /// Returns all warnings, with advice.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let of_inbox = |inbox: &InboxPlan| {
            let name = inbox.name.clone();
            inbox.warnings.clone().into_iter().map(move |warning| format!("inbox {name}: {warning}"))
        };
        let api = self.api.as_ref().and_then(ApiPlan::warning);
        let stores = self.stores.iter().filter_map(StorePlan::warning);
        self.inboxes.iter().flat_map(of_inbox).chain(api).chain(stores).chain(self.warnings.clone()).collect()
    }
}

/// A certificate and its key, in PEM. Never shows them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TlsPlan {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl std::fmt::Debug for TlsPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsPlan").finish_non_exhaustive()
    }
}

/// Plan of an inbox.
#[derive(Clone, Debug)]
pub(crate) struct InboxPlan {
    pub(crate) name: String,
    /// Offset of its table in the file.
    pub(crate) at: usize,
    pub(crate) store: String,
    pub(crate) config: Config,
    pub(crate) order: Option<KeyLocation>,
    pub(crate) http: Vec<HttpPlan>,
    pub(crate) rabbitmq: Vec<RabbitmqPlan>,
    pub(crate) handlers: Vec<HandlerPlan>,
    /// Warnings to log at start.
    pub(crate) warnings: Vec<String>,
}

/// Plan of a handler.
#[derive(Clone, Debug)]
pub(crate) struct HandlerPlan {
    pub(crate) key: String,
    pub(crate) types: Vec<String>,
    pub(crate) endpoint: HandlerEndpoint,
    pub(crate) concurrency: usize,
    pub(crate) retry: Retry,
    pub(crate) crashes: Option<u32>,
    pub(crate) crash_delay: Option<Duration>,
    pub(crate) rate: Option<Rate>,
    pub(crate) breaker: Option<Breaker>,
    pub(crate) dedupe: Option<Dedupe>,
    pub(crate) retention: Option<Duration>,
    pub(crate) legacy: Vec<String>,
    pub(crate) on_poisoned: OnPoisoned,
    /// True if its entries ignore ordering keys.
    pub(crate) unordered: bool,
    /// True if each start adds entries for stored messages that it has not had.
    pub(crate) backfill: bool,
}

/// Secrets to read. The others are assumed to be valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secrets {
    /// All of them.
    Read,
    /// Only those that open stores. An operator of a store does not need the secrets of sources and handlers.
    Stores,
    /// None.
    Assume,
}

/// Builds a plan and collects all problems.
pub(super) struct Planner {
    pub(super) secrets: Secrets,
    pub(super) problems: Vec<ConfigProblem>,
}

impl Planner {
    pub(super) fn wrong(&mut self, at: usize, what: impl Into<String>) {
        self.problems.push(ConfigProblem { at, what: what.into() });
    }

    /// Returns the secrets of a setting; none if they are assumed.
    pub(super) fn read_all(&mut self, set: Option<&Located<Many<SecretRef>>>) -> Vec<String> {
        let (secrets, at) = many(set, 0);
        if set.is_some() && secrets.is_empty() {
            self.wrong(at, "the list has no secret; name at least one, or remove the setting");
        }
        let wanted = secrets.iter().filter(|_| self.secrets == Secrets::Read);
        let read: Vec<_> = wanted.map(SecretRef::read).collect();
        read.into_iter().filter_map(|read| read.map_err(|why| self.wrong(at, why)).ok()).collect()
    }

    pub(super) fn guarded(&mut self, text: &Located<Guarded>) -> Option<String> {
        if self.secrets != Secrets::Read && matches!(**text, Guarded::Named(_)) {
            return None;
        }
        self.read(text)
    }

    pub(super) fn read(&mut self, text: &Located<Guarded>) -> Option<String> {
        text.read().map_err(|why| self.wrong(text.at(), why)).ok()
    }

    pub(super) fn plan(&mut self, file: &ConfigFile) -> Option<ConfigPlan> {
        let listen = file.listen.as_ref();
        let (text, at) = listen.map_or((LISTEN, 0), |listen| (listen.as_str(), listen.at()));
        let listen = self.address(text, at);
        let tls = file.tls.as_ref().and_then(|tls| self.tls(tls));
        let connections_per_address = file.connections_per_address.as_ref().map(|set| {
            if **set == 0 {
                self.wrong(set.at(), "no sender could connect; set at least 1");
            }
            **set
        });
        let mut stores: Vec<StorePlan> =
            file.store.iter().filter_map(|(name, store)| self.store(name, store)).collect();
        if file.store.is_empty() {
            if let Some(flaw) = self.flaw_of_file(Path::new(DATABASE)) {
                self.wrong(0, flaw);
            }
            let place = StorePlace::Sqlite(DATABASE.into());
            stores.push(StorePlan { name: "main".into(), place, migrate: true, seal: None });
        }
        if file.inbox.is_empty() {
            self.wrong(0, "no inbox is configured; add one, like [inbox.orders]");
        }
        let inboxes: Vec<InboxPlan> =
            file.inbox.iter().filter_map(|(name, inbox)| self.inbox(file, name, inbox)).collect();
        self.sources(&inboxes);
        let api = file.api.as_ref().and_then(|api| self.api(api, listen, file.tls.is_some()));
        let health = self.health(&file.health);
        let listen = listen?;
        let warnings = self.check_secrets(file, &inboxes, api.as_ref());
        self.problems.is_empty().then_some(ConfigPlan {
            listen,
            tls,
            connections_per_address,
            stores,
            inboxes,
            api,
            health,
            warnings,
        })
    }

    fn tls(&mut self, tls: &Located<model::TlsTable>) -> Option<TlsPlan> {
        let (certificate, key) = (self.file(&tls.certificate), self.file(&tls.key));
        let plan = TlsPlan { certificate: certificate?, key: key? };
        match oncebox_http::Tls::from_pem(plan.certificate.as_bytes(), plan.key.as_bytes()) {
            Ok(_) => Some(plan),
            Err(error) => {
                self.wrong(tls.at(), error.what());
                None
            }
        }
    }

    pub(super) fn address(&mut self, text: &str, at: usize) -> Option<SocketAddr> {
        let what =
            || format!("{text:?}is not an address; write it like \"127.0.0.1:8471\" or \"[::1]:8471\"");
        text.parse().map_err(|_| self.wrong(at, what())).ok()
    }

    fn inbox(
        &mut self,
        file: &ConfigFile,
        name: &Located<String>,
        inbox: &model::InboxTable,
    ) -> Option<InboxPlan> {
        if let Err(error) = InboxName::new(name.as_str()) {
            self.wrong(name.at(), error.what());
        }
        let store = self.store_of(file, name, inbox)?;
        let config = self.config(file, inbox);
        let order = inbox.order.as_ref();
        if let Some((at, flaw)) = order.and_then(|order| Some((order.at(), order.flaw()?))) {
            self.wrong(at, flaw);
        }
        let handlers =
            inbox.handler.iter().filter_map(|(key, handler)| self.handler(file, key, handler)).collect();
        let mut http: Vec<HttpPlan> =
            inbox.http.iter().map(|(source, http)| self.http(source, http)).collect();
        let rabbitmq = inbox.rabbitmq.iter().map(|(source, queue)| self.rabbitmq(source, queue)).collect();
        if inbox.http.is_empty() && inbox.rabbitmq.is_empty() {
            http.push(HttpPlan::local(name));
        }
        self.check_tenants(name, inbox);
        self.check_backfill(inbox);
        let order = order.map(|order| (**order).clone());
        let mut plan = InboxPlan {
            name: name.to_string(),
            at: name.at(),
            store,
            config,
            order,
            http,
            rabbitmq,
            handlers,
            warnings: Vec::new(),
        };
        self.check_windows(&mut plan);
        Some(plan)
    }

    fn store_of(
        &mut self,
        file: &ConfigFile,
        name: &Located<String>,
        inbox: &model::InboxTable,
    ) -> Option<String> {
        let known: Vec<&str> = file.store.keys().map(|name| name.as_str()).collect();
        match (&inbox.store, known.as_slice()) {
            (None, []) => Some("main".into()),
            (None, [only]) => Some((*only).to_owned()),
            (None, several) => {
                let what = format!(
                    "`store` is missing, and several are configured; name one of {}",
                    several.join(", ")
                );
                self.wrong(name.at(), what);
                None
            }
            (Some(store), known) if known.contains(&store.as_str()) => Some(store.to_string()),
            (Some(store), known) => {
                let hint = match nearest(store, known) {
                    Some(meant) => format!("did you mean {meant:?}?"),
                    None => format!("add [store.{}]", store.as_str()),
                };
                self.wrong(store.at(), format!("unknown store {:?}; {hint}", store.as_str()));
                None
            }
        }
    }

    fn config(&mut self, file: &ConfigFile, inbox: &model::InboxTable) -> Config {
        let mut config = Config::default();
        if let Some(key) = &inbox.key {
            match &key.0 {
                Dedupe::By(strategy) => config.key = strategy.clone(),
                _ => self
                    .wrong(key.at(), "an inbox always has a key; set `key = \"off\"` for a handler instead"),
            }
        }
        let span = |set: &Option<Located<super::value::TimeSpan>>, default| {
            set.as_ref().map_or(default, |span| span.0)
        };
        config.lease = span(&inbox.lease, config.lease);
        config.poll = span(&inbox.poll, config.poll);
        config.grace = span(&file.grace, config.grace);
        config.rescue = config.rescue.min(config.lease);
        config.retention = inbox.retention.as_ref().map_or(config.retention, |window| window.0);
        config.sweep = inbox.sweep.as_ref().map(|span| span.0);
        config.in_flight = inbox.in_flight.as_deref().copied().unwrap_or(config.in_flight);
        if let Some(payload) = inbox.max_payload.as_deref() {
            config.limits = Limits { payload: *payload, ..config.limits };
        }
        config.short_window = match inbox.short_window {
            Some(model::ShortWindowSetting::Warn) => ShortWindow::Warn,
            _ => ShortWindow::Refuse,
        };
        config.on_conflict = inbox.on_conflict.map(Into::into);
        config.missing_key = match inbox.missing_key {
            Some(model::MissingKeySetting::Undeduplicated) => MissingKey::Undeduplicated,
            _ => MissingKey::Refuse,
        };
        config.tenants = match inbox.tenants {
            Some(model::TenantsSetting::Optional) => Tenants::Optional,
            Some(model::TenantsSetting::Required) => Tenants::Required,
            _ => Tenants::Off,
        };
        config.adopted_tenant = inbox.adopted_tenant.as_deref().map(|tenant| tenant.as_str().into());
        config.on_tenants_change = match inbox.on_tenants_change {
            Some(model::OnTenantsChangeSetting::Accept) => OnTenantsChange::Accept,
            _ => OnTenantsChange::Refuse,
        };
        config.unrouted = match inbox.unrouted {
            Some(model::UnroutedSetting::Refuse) => Unrouted::Refuse,
            _ => Unrouted::Keep,
        };
        config
    }

    fn handler(
        &mut self,
        file: &ConfigFile,
        key: &Located<String>,
        handler: &model::HandlerTable,
    ) -> Option<HandlerPlan> {
        let allowed = allowed(handler.allow_private.as_ref().or(file.allow_private.as_ref()));
        let url = self.url(handler, &allowed);
        if let Some(timeout) = handler.timeout.as_ref().filter(|timeout| timeout.0.is_zero()) {
            self.wrong(timeout.at(), "no response can arrive in time; use at least one second");
        }
        let signer = Signer::new(self.read_all(handler.secret.as_ref())).map_err(|why| {
            self.wrong(many(handler.secret.as_ref(), key.at()).1, why);
        });
        let headers = handler.headers.iter().filter_map(|(name, value)| self.header(name, value)).collect();
        let roots = handler.ca_file.as_ref().map_or_else(Vec::new, |path| self.roots(path));
        let (forward, at) = many(handler.forward.as_ref(), key.at());
        let forward = forward.iter().filter_map(|name| self.forwarded(name, at)).collect();
        let types = many(handler.types.as_ref(), 0).0.to_vec();
        let breaker = handler.breaker.as_ref().map(|breaker| {
            let set = Breaker::new(breaker.failures, breaker.pause.0);
            breaker.max_pause.map_or(set.clone(), |max| set.max_pause(max.0))
        });
        Some(HandlerPlan {
            key: key.to_string(),
            types: if types.is_empty() { vec!["*".into()] } else { types },
            endpoint: HandlerEndpoint {
                url: url?,
                timeout: handler.timeout.as_ref().map_or(TIMEOUT, |span| span.0),
                on_4xx: handler.on_4xx,
                allowed,
                signer: signer.ok()?,
                headers,
                forward,
                roots,
            },
            concurrency: handler.concurrency.as_deref().copied().unwrap_or(CONCURRENCY),
            retry: handler.retry.as_ref().map_or_else(Retry::default, |retry| retry.0.clone()),
            crashes: handler.crashes.as_deref().copied(),
            crash_delay: handler.crash_delay.as_ref().map(|span| span.0),
            rate: handler.rate.as_ref().map(|rate| rate.0.clone()),
            breaker,
            dedupe: handler.key.as_ref().map(|key| key.0.clone()),
            retention: handler.retention.as_ref().map(|window| window.0.unwrap_or(Duration::MAX)),
            legacy: many(handler.legacy.as_ref(), 0).0.to_vec(),
            on_poisoned: match handler.on_poisoned {
                Some(model::OnPoisonedSetting::Park) => OnPoisoned::Park,
                Some(model::OnPoisonedSetting::Skip) => OnPoisoned::Skip,
                _ => OnPoisoned::Block,
            },
            unordered: handler.unordered.as_deref() == Some(&true),
            backfill: handler.backfill.as_deref() == Some(&true),
        })
    }

    fn url(&mut self, handler: &model::HandlerTable, allowed: &Allowed) -> Option<Url> {
        let (text, at) = (handler.url.as_str(), handler.url.at());
        let url = match Url::parse(text) {
            Ok(url) if ["http", "https"].contains(&url.scheme()) => url,
            _ => {
                self.wrong(at, "not the URL of a handler; write it like \"https://example.com/hook\"");
                return None;
            }
        };
        if !url.username().is_empty() || url.password().is_some() {
            let what = "the URL contains a password; move it to `headers`: { authorization = \"env:NAME\" }";
            self.wrong(at, what);
            return None;
        }
        if let Err(refused) = check_url(allowed, &url) {
            self.wrong(at, refused.to_string());
            return None;
        }
        Some(url)
    }

    fn roots(&mut self, path: &Located<String>) -> Vec<Certificate> {
        let Some(pem) = self.file(path) else { return Vec::new() };
        let roots = Certificate::from_pem_bundle(pem.as_bytes()).unwrap_or_default();
        if roots.is_empty() {
            self.wrong(
                path.at(),
                format!("{:?} contains no certificate in PEM format; check the file", path.as_str()),
            );
        }
        roots
    }

    /// Reads a file; returns `None` if secrets are assumed.
    pub(super) fn file(&mut self, path: &Located<String>) -> Option<String> {
        if self.secrets != Secrets::Read {
            return None;
        }
        let read = std::fs::read_to_string(path.as_str());
        let wrong =
            |error| format!("{:?} cannot be read ({error}); check its path and permissions", path.as_str());
        read.map_err(|error| self.wrong(path.at(), wrong(error))).ok()
    }
}

fn allowed(private: Option<&Private>) -> Allowed {
    match private {
        None | Some(Private::Refused) => Allowed::default(),
        Some(Private::Allowed) => Allowed { private: true, networks: Vec::new() },
        Some(Private::Networks(networks)) => Allowed { private: false, networks: networks.clone() },
    }
}
