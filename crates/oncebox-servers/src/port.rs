//! Reserved ports. Tests: below.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};

/// Below the kernel's ports for outgoing connections, so that none of those occupies our port while the server is down.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port on 127.0.0.1 that is reserved until this is dropped, with or without a server. Tests use it for a server that starts
/// later, or never. Without a reservation, another test could take the port, and a client that connects often enough could connect
/// to itself.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _claim: PortClaim,
}

impl Port {
    /// Reserves a port on which no server listens and which no other [`Port`] has, in any process.
    pub fn free() -> Result<Self> {
        let start = u16::try_from(RandomState::new().hash_one(()) % u64::from(COUNT)).unwrap_or(0);
        for step in 0..COUNT {
            let number = FIRST + (start + step) % COUNT;
            let Ok(claim) = claim(number) else { continue };
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _claim: claim });
            }
        }
        bail!("there is no free port between {FIRST} and {}", FIRST + COUNT - 1)
    }

    /// Returns its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(target_os = "linux")]
type PortClaim = std::os::unix::net::UnixListener;

/// Lock: a kernel name that only one process can have. It is free again when the process ends.
#[cfg(target_os = "linux")]
fn claim(number: u16) -> io::Result<PortClaim> {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};

    UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("oncebox-port-{number}"))?)
}

#[cfg(not(target_os = "linux"))]
type PortClaim = ();

#[cfg(not(target_os = "linux"))]
fn claim(_number: u16) -> io::Result<PortClaim> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_taken_once() {
        let port = Port::free().unwrap();
        assert!(claim(port.number()).is_err());
        let number = port.number();
        drop(port);
        claim(number).unwrap();
    }

    #[test]
    fn many_ports_differ() {
        let ports: Vec<Port> = (0..50).map(|_| Port::free().unwrap()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ports.len());
    }
}
