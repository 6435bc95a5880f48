"""Publishes messages as a Python service does: with pika, an independent client."""

import json
import sys

import pika

port, queue = int(sys.argv[1]), sys.argv[2]
connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
channel = connection.channel()
channel.confirm_delivery()


def publish(body, **properties):
    channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2, **properties), mandatory=True)


for number in range(100):
    for _ in range(2):
        publish(json.dumps({"order": number}), message_id=f"p-{number}", type="t", app_id="shop")

# CloudEvents in binary mode, with each of the two prefixes, and in structured mode.
event = {"specversion": "1.0", "source": "/shop", "id": "event", "type": "t"}
for prefix in ("cloudEvents:", "cloudEvents_"):
    headers = {prefix + name: value for name, value in event.items()}
    publish('{"order":1}', content_type="application/json", headers=headers)
structured = dict(event, datacontenttype="application/json", data={"order": 1})
publish(json.dumps(structured, separators=(",", ":")), content_type="application/cloudevents+json")

# Headers of every type that pika knows, and a body that is not text.
publish(b"\x00\xff", message_id="headers", type="t", timestamp=1700000000, headers={
    "text": "tëxt", "number": 7, "long": 1 << 40, "flag": True, "nothing": None,
    "list": [1, "a"], "table": {"a": 1}, "bytes": b"\x00\xff",
})
# What can never be taken: no id, and no type.
publish("no id", type="t")
publish("no type", message_id="no-type")
connection.close()
