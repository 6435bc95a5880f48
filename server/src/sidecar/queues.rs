//! RabbitMQ queues as sources. Tests: below and `tests/serve/rabbitmq.rs`.

use anyhow::Result;
use oncebox::source::Redelivery;
use oncebox::{Running, Store};
use oncebox_rabbitmq::{Field, Queue, RabbitMq};

use crate::config::{Declare, RabbitmqPlan};

/// Starts receiving from a queue.
pub(super) fn consume<S: Store>(running: &Running<S>, plan: &RabbitmqPlan) -> Result<()> {
    running.receive(queue(plan)?).map_err(|error| anyhow::anyhow!("{}", error.what()))
}

/// Builds the source of a queue, without connecting.
pub(super) fn queue(plan: &RabbitmqPlan) -> Result<RabbitMq> {
    let set = &plan.settings;
    let mut queue = match set.declare {
        None => Queue::existing(plan.queue.as_str()),
        Some(Declare::Quorum) => Queue::quorum(plan.queue.as_str()),
        Some(Declare::Classic) => Queue::classic(plan.queue.as_str()),
    };
    if let Some(exchange) = &set.dead_letter_exchange {
        queue = queue.dead_letter_exchange(exchange.as_str());
    }
    if let Some(key) = &set.dead_letter_routing_key {
        queue = queue.dead_letter_routing_key(key.as_str());
    }
    if let Some(letters) = &set.dead_letter_queue {
        queue = queue.dead_letter_queue(letters.as_str());
    }
    if let Some(limit) = set.delivery_limit.as_deref() {
        queue = queue.delivery_limit(*limit);
    }
    // Ids are unique only within one queue, so its name is the source.
    let mut builder = RabbitMq::builder(&plan.url)
        .name(plan.name.as_str())
        .producer(Field::fixed(plan.name.as_str()))
        .queue(queue);
    if set.cloudevents == Some(true) {
        builder = builder.cloud_events();
    }
    if let Some(header) = &set.id_header {
        builder = builder.id(Field::header(header.as_str()));
    }
    if let Some(header) = &set.type_header {
        builder = builder.message_type(Field::header(header.as_str()));
    }
    if let Some(kind) = &set.kind {
        builder = builder.message_type(Field::fixed(kind.as_str()));
    }
    if let Some(tenant) = &set.tenant {
        builder = builder.tenant(Field::fixed(tenant.as_str()));
    }
    if let Some(window) = &set.redelivers {
        builder = builder.redelivers_for(window.0.map_or(Redelivery::Forever, Redelivery::Within));
    }
    if let Some(prefetch) = set.prefetch.as_deref() {
        builder = builder.prefetch(*prefetch);
    }
    if let Some(exchange) = &set.rejected_exchange {
        let key = set.rejected_routing_key.as_deref().map_or("", String::as_str);
        builder = builder.rejected_to(exchange.as_str(), key);
    }
    if let Some(ca) = &plan.ca {
        builder = builder.ca_certificates(ca);
    }
    builder
        .discard_rejected(set.discard_rejected == Some(true))
        .build()
        .map_err(|error| anyhow::anyhow!("{}", error.what()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loaded;

    #[test]
    fn a_queue_is_the_source_of_its_messages_so_that_two_may_have_the_same_ids() {
        let one = |name: &str| {
            format!("[inbox.i.rabbitmq.{name}]\nurl = \"amqp://h\"\nqueue = \"q\"\ndiscard_rejected = true\n")
        };
        let loaded = Loaded::from_text(one("stock") + &one("bills"), crate::config::Secrets::Read).unwrap();
        for plan in &loaded.plan.inboxes[0].rabbitmq {
            let built = format!("{:?}", queue(plan).unwrap());
            assert!(built.contains(&format!("producer: Some(Fixed({:?}))", plan.name)), "{built}");
        }
    }
}
