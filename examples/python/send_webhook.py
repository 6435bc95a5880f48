"""Sends a signed webhook to oncebox, as Standard Webhooks asks for: twice, and once with a signature that is wrong.

    pip install standardwebhooks
    python send_webhook.py http://localhost:8080/in/partner whsec_...
"""

import datetime
import json
import sys
import urllib.error
import urllib.request

from standardwebhooks.webhooks import Webhook

url, secret = sys.argv[1:3]
body = json.dumps({"type": "contact.created", "data": {"name": "Grüße"}}, ensure_ascii=False)


def send(message_id, body, signed):
    now = datetime.datetime.now(datetime.timezone.utc)
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(message_id, now, signed),
        "content-type": "application/json",
    }
    request = urllib.request.Request(url, data=body.encode(), headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as problem:
        return problem.code


print("signed", send("msg_1", body, body), send("msg_1", body, body))
print("forged", send("msg_2", body, body + " "))
