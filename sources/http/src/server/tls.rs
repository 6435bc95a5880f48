//! Certificate of a server. Tests: tests/clients.rs.

use std::fmt;
use std::sync::Arc;

use oncebox::{Error, ErrorKind, Result};
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// A certificate and its key, for a [`Server`](super::Server) with TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1. Clones share
/// the certificate: [`replace`](Self::replace) applies to every new connection.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<Arc<ServerConfig>>>);

impl Tls {
    /// Reads a chain of certificates, the server's own first, and its key, both in PEM.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self> {
        Ok(Self(Arc::new(RwLock::new(config(certificates, key)?))))
    }

    /// Replaces the certificate for new connections. Open connections keep theirs. If the new one is invalid, the old
    /// one stays.
    pub fn replace(&self, certificates: &[u8], key: &[u8]) -> Result<()> {
        let config = config(certificates, key)?;
        *self.0.write() = config;
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.read()))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

fn config(certificates: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>> {
    let refuse = |what: String| Error::new(ErrorKind::InvalidConfig, what);
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificates)
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| refuse(format!("the certificate is not PEM: {error}")))?;
    if chain.is_empty() {
        return Err(refuse("there is no certificate: it begins with `-----BEGIN CERTIFICATE-----`".into()));
    }
    // The error must not show the key.
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| refuse("there is no private key in PEM: PKCS#8, PKCS#1 and SEC1 are read".into()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(format!("TLS cannot be used: {error}")))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| refuse(format!("the certificate and its key cannot be used: {error}")))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
