"""Publishes a message that no careful client would: its id is not UTF-8. Then some good ones."""

import sys

import pika

port, queue = int(sys.argv[1]), sys.argv[2]
connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
channel = connection.channel()
channel.confirm_delivery()
for number in range(40):
    message_id = b"\xff\xfe" if number == 20 else f"{number}"
    properties = pika.BasicProperties(delivery_mode=2, message_id=message_id, type="t")
    channel.basic_publish("", queue, "x", properties, mandatory=True)
connection.close()
