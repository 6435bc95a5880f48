-- name: erase_answers
-- Reads the answers of earlier operations on a key.
-- ?1 digest
-- Index: oncebox_operation_digest.
SELECT number, answer FROM oncebox_operation WHERE digest = ?1;

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
-- Deletes the messages quarantined under a key.
-- ?1 digest
-- ?2 inbox
-- Index: unique (digest, fingerprint) of oncebox_quarantine.
DELETE FROM oncebox_quarantine WHERE digest = ?1 AND inbox = ?2;

-- name: erase_set_answer
-- Replaces the answer of an operation.
-- ?1 number
-- ?2 answer, JSON
-- Index: primary key of oncebox_operation.
UPDATE oncebox_operation SET answer = ?2 WHERE number = ?1;
