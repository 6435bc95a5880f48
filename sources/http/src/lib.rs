//! Messages over HTTP.

#![forbid(unsafe_code)]
