//! RabbitMQ sources, with a real broker.

use std::time::Duration;

use futures_util::StreamExt as _;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use oncebox_servers::RabbitMqServer;

use super::support::{AT_ONCE, PATIENCE, Receiver, Sidecar, one_handler};

/// Publishes to a queue as soon as it exists.
async fn publish(channel: &Channel, queue: &str, properties: BasicProperties) {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let mut pause = tokio::time::interval(Duration::from_millis(50));
    let publish = async {
        loop {
            let sent = channel.basic_publish("".into(), queue.into(), options, b"{}", properties.clone());
            if matches!(sent.await.unwrap().await.unwrap(), Confirmation::Ack(None)) {
                return;
            }
            pause.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, publish).await.expect("the queue is declared");
}

/// Returns the id of the next message in a queue.
async fn next(channel: &Channel, queue: &str) -> String {
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let consumer = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await;
    let delivery = tokio::time::timeout(PATIENCE, consumer.unwrap().next()).await.expect("a dead letter");
    delivery.unwrap().unwrap().properties.message_id().as_ref().map_or("", |id| id.as_str()).to_owned()
}

// FAULTS F1: a rejected message is not lost, and does not block the queue.
#[test]
fn the_configuration_declares_the_queue_and_where_its_dead_letters_go() {
    let broker = RabbitMqServer::shared();
    let handler = Receiver::good();
    let queue = format!("serve-{}", std::process::id());
    let dead = format!("{queue}.dead");
    let config = format!(
        "{}[inbox.orders.rabbitmq.warehouse]\nurl = \"env:AMQP\"\nqueue = \"{queue}\"\ndeclare = \"quorum\"\n\
         delivery_limit = 7\ndead_letter_queue = \"{dead}\"\n",
        one_handler(&handler.url(), AT_ONCE)
    );
    let sidecar = Sidecar::with_env(&config, &[("AMQP", &broker.url())]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let connection = Connection::connect(&broker.url(), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        // Without a type, no handler can be chosen.
        publish(&channel, &queue, BasicProperties::default().with_message_id("bad".into())).await;
        let good = BasicProperties::default().with_message_id("good".into()).with_type("t".into());
        publish(&channel, &queue, good).await;
        assert_eq!(next(&channel, &dead).await, "bad");
    });
    assert_eq!(handler.wait_for(1)[0].id(), "good", "it is not held up");
    let arguments = broker.ctl(&["list_queues", "name", "arguments"]).unwrap();
    let declared = arguments.lines().find(|line| line.split('\t').next() == Some(&queue)).unwrap();
    assert!(declared.contains("x-delivery-limit") && declared.contains('7'), "{declared}");
    sidecar.stop();
    for queue in [&queue, &dead] {
        broker.ctl(&["delete_queue", queue]).unwrap();
    }
}
