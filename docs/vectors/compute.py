"""The dedupe key and the fingerprint of a message, as docs/keys.md describes them. Reads the test vectors, prints what it computes."""

import hashlib
import json
import sys


def digest(purpose, *parts):
    sha = hashlib.sha256(b"\x01" + purpose)
    for part in parts:
        sha.update(len(part).to_bytes(8, "big"))
        sha.update(part)
    return sha.digest()


def key(inbox, tenant, source, *parts):
    if tenant is None:
        return digest(b"k", inbox, source, *parts)
    return digest(b"K", inbox, tenant, source, *parts)


def order(inbox, tenant, source, ordering_key):
    if tenant is None:
        return digest(b"o", inbox, source, ordering_key)[:16]
    return digest(b"O", inbox, tenant, source, ordering_key)[:16]


def fingerprint(message_type, content):
    return digest(b"t", message_type)[:4] + digest(b"f", message_type, content)[4:16]


def value(field):
    return None if field is None else bytes.fromhex(field["hex"]) * field.get("times", 1)


for vector in json.load(open(sys.argv[1]))["vectors"]:
    inbox, tenant, source, message_id, message_type, payload, ordering_key = (
        value(vector[name]) for name in ("inbox", "tenant", "source", "id", "type", "payload", "ordering_key")
    )
    print(
        vector["name"],
        key(inbox, tenant, source, b"id", message_id).hex(),
        fingerprint(message_type, payload).hex(),
        order(inbox, tenant, source, ordering_key).hex(),
    )
