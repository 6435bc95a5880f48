//! Messages from RabbitMQ.

#![forbid(unsafe_code)]
