-- Deletes the messages quarantined under a key. Returns their ids and ordering keys.
-- ?1 digest
-- ?2 inbox
-- Index: unique (digest, fingerprint) of oncebox_quarantine.
DELETE FROM oncebox_quarantine WHERE digest = ?1 AND inbox = ?2 RETURNING message_id, ordering_key
