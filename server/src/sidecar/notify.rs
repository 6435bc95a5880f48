//! Notifies systemd of the state of the process (`Type=notify`). Tests: `tests/serve/stop.rs`.

/// Reports that the sidecar accepts messages.
pub(super) fn ready() {
    send("READY=1");
}

/// Reports a reload; [`ready`] follows.
pub(super) fn reloading() {
    send("RELOADING=1");
}

/// Reports the shutdown.
pub(super) fn stopping() {
    send("STOPPING=1");
}

/// Sends a state to systemd, and ignores errors.
#[cfg(target_os = "linux")]
fn send(state: &str) {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}

#[cfg(not(target_os = "linux"))]
fn send(_: &str) {}
