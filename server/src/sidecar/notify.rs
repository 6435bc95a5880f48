//! Tells systemd how far we are (`Type=notify`), where it asks to be told.

/// Messages are taken in.
pub(super) fn ready() {
    send("READY=1");
}

/// The configuration is being read again; [`ready`] follows.
pub(super) fn reloading() {
    send("RELOADING=1");
}

/// What runs is being finished.
pub(super) fn stopping() {
    send("STOPPING=1");
}

/// Best effort: whoever does not listen is not told.
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
