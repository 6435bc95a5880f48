-- name: erase_answers
-- Reads the answers of earlier operations on a key.
-- ?1 digest
-- Index: oncebox_operation_digest.
SELECT number, answer FROM oncebox_operation WHERE digest = ?1;

-- name: erase_bodies
-- Reads the requests of earlier operations that may name an id or an ordering key.
-- ?1 inbox
-- Index: oncebox_operation_age; reads all operations of the inbox.
SELECT number, body FROM oncebox_operation WHERE inbox = ?1 AND verb IN ('bulk', 'pause_key', 'resume_key');

-- name: erase_marks
-- Deletes results and fingerprints of the marks of a key. Counts every mark.
-- ?1 digest
-- Index: unique (digest, handler) of oncebox_mark.
UPDATE oncebox_mark SET result = NULL, fingerprint = NULL WHERE digest = ?1;

-- name: erase_message
-- Deletes the content of a message. The row stays as the proof of its key, with the fingerprint of erased content.
-- ?1 seq
-- ?2 fingerprint of erased content
-- Index: primary key of oncebox_message.
UPDATE oncebox_message
SET fingerprint = ?2, time = NULL, source = '', id = x'', type = '', ordering_key = NULL, headers = x'', payload = x''
WHERE seq = ?1;

-- name: erase_outcomes
-- Deletes the errors of a message's outcomes.
-- ?1 seq
-- Index: primary key of oncebox_outcome.
UPDATE oncebox_outcome SET error = NULL WHERE seq = ?1 AND error IS NOT NULL;

-- name: erase_quarantine
-- Deletes the messages quarantined under a key. Returns their ids and ordering keys.
-- ?1 digest
-- ?2 inbox
-- Index: unique (digest, fingerprint) of oncebox_quarantine.
DELETE FROM oncebox_quarantine WHERE digest = ?1 AND inbox = ?2 RETURNING message_id, ordering_key;

-- name: erase_set_answer
-- Replaces the answer of an operation.
-- ?1 number
-- ?2 answer, JSON
-- Index: primary key of oncebox_operation.
UPDATE oncebox_operation SET answer = ?2 WHERE number = ?1;

-- name: erase_set_body
-- Replaces the request of an operation.
-- ?1 number
-- ?2 body, JSON
-- Index: primary key of oncebox_operation.
UPDATE oncebox_operation SET body = ?2 WHERE number = ?1;
