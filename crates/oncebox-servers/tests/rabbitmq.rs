//! A broker of RabbitMQ: started, broken and ended.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use oncebox_servers::RabbitMqServer;

/// Returns true if the broker responds to an AMQP header.
fn responds(broker: &RabbitMqServer) -> bool {
    responds_within(Duration::from_mins(1), broker)
}

fn responds_within(patience: Duration, broker: &RabbitMqServer) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, broker.port())) else { return false };
    stream.set_read_timeout(Some(patience)).unwrap();
    stream.write_all(b"AMQP\x00\x00\x09\x01").unwrap();
    stream.read(&mut [0; 8]).is_ok_and(|read| read > 0)
}

/// Returns the processes that use a directory.
fn processes(dir: &str) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    all.filter(|process| {
        let works = fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
        let named = fs::read_to_string(process.join("environ")).is_ok_and(|text| text.contains(dir));
        works || named
    })
    .collect()
}

#[test]
fn a_broker_survives_what_is_done_to_it_and_leaves_nothing_behind() {
    let broker = RabbitMqServer::start().unwrap();
    assert!(responds(&broker));
    let data = broker.ctl(&["eval", "rabbit_mnesia:dir()."]).unwrap();
    let dir = data.trim().trim_matches('"').split("/node/").next().unwrap().to_owned();
    // The broker, its helpers, its node registry, and the guardian, which has the directory as an argument.
    assert!(processes(&dir).len() >= 2, "{dir}: {:?}", processes(&dir));

    broker.ctl(&["add_vhost", "kept"]).unwrap();
    broker.kill9().unwrap();
    assert!(!responds(&broker));
    broker.start_again().unwrap();
    assert!(broker.ctl(&["list_vhosts"]).unwrap().contains("kept"), "what it has is on disk");

    broker.suspend().unwrap();
    let patience = Duration::from_secs(2);
    assert!(!responds_within(patience, &broker), "a suspended broker takes connections and says nothing");
    broker.resume().unwrap();
    assert!(responds(&broker));

    broker.stop().unwrap();
    assert!(!responds(&broker));
    drop(broker);
    assert_eq!(processes(&dir), Vec::<PathBuf>::new());
    assert!(!fs::exists(&dir).unwrap());
}

/// Declares a quorum queue.
fn declare(broker: &RabbitMqServer, queue: &str) {
    let declare = r#"rabbit_amqqueue:declare({resource, <<"/">>, queue, <<"NAME">>}, true, false,
        [{<<"x-queue-type">>, longstr, <<"quorum">>}], none, <<"test">>)."#;
    broker.ctl(&["eval", &declare.replace("NAME", queue)]).unwrap();
}

#[test]
fn a_quorum_queue_without_a_leader_is_named_and_brought_back() {
    let broker = RabbitMqServer::start().unwrap();
    declare(&broker, "orders");
    // A loaded machine may need help to give a new queue its leader.
    assert_eq!(broker.elect_leaders().unwrap(), Vec::<String>::new());
    assert_eq!(broker.leaderless().unwrap(), Vec::<String>::new());

    broker.stop_queue("orders").unwrap();
    assert_eq!(broker.leaderless().unwrap(), ["orders (stopped)"]);
    broker.start_queue("orders").unwrap();
    assert_eq!(broker.elect_leaders().unwrap(), Vec::<String>::new());

    let before = broker.elections();
    broker.stop_queue("orders").unwrap();
    assert_eq!(broker.elect_leaders().unwrap(), Vec::<String>::new(), "without any other help");
    assert!(broker.elections() > before);
    assert_eq!(broker.total("orders").unwrap(), 0);
}

// A broker that had forgotten them would start them as new ones, without a leader.
#[test]
fn a_broker_that_is_killed_remembers_the_quorum_queues_that_were_just_declared() {
    let broker = RabbitMqServer::start().unwrap();
    for round in 1..=3 {
        declare(&broker, &format!("orders-{round}"));
        broker.kill9().unwrap();
        broker.start_again().unwrap();
        // A loaded machine may need help, so elections prove nothing.
        assert_eq!(broker.leaderless().unwrap(), Vec::<String>::new());
    }
}
