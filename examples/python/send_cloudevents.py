"""Sends CloudEvents to oncebox: one in each mode, each of them twice, as a sender does that got no answer.

    pip install cloudevents
    python send_cloudevents.py http://localhost:8080/in/shop TOKEN
"""

import datetime
import json
import sys
import urllib.error
import urllib.request

from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

url, token = sys.argv[1:3]


def event(number, subject):
    attributes = {
        "type": "order.placed",
        "source": "/shop/python",
        "id": f"order-{number}",
        "subject": subject,
        "time": datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.timezone.utc),
        "datacontenttype": "application/json",
        "partitionkey": "customer 42",
    }
    return CloudEvent(attributes, {"order": number, "note": "grüß €5"})


def send(headers, body):
    headers = {**headers, "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as problem:
        # What was kept, and what to do, is in the answer.
        print(problem.read().decode(), file=sys.stderr)
        return problem.code


def twice(mode, headers, body):
    print(mode, send(headers, body), send(headers, body))


binary = to_binary_event(event(1, "100% grün"))
twice("binary", binary.headers, binary.body)

structured = to_structured_event(event(2, "plain"))
twice("structured", structured.headers, structured.body)

batch = [json.loads(JSONFormat().write(event(number, "batch"))) for number in (3, 4, 5)]
twice("batch", {"content-type": "application/cloudevents-batch+json"}, json.dumps(batch).encode())

# The same event in another mode is the same event.
structured = to_structured_event(event(1, "100% grün"))
print("again", send(structured.headers, structured.body))
