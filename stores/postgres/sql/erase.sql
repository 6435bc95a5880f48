-- name: erase
-- Deletes the content of a message and the messages quarantined under its key. The proof stays, with the fingerprint of
-- erased content. Returns the number of quarantined messages, and true if the key has a mark.
-- $1 lane smallint: of the key
-- $2 digest bytea
-- $3 inbox smallint
-- $4 seq bigint or NULL
-- $5 fingerprint bytea: of erased content
-- Index: primary keys; unique (digest, fingerprint) of oncebox_quarantine.
-- Lock order: the row of oncebox_proof, which `admin_hold` locked first.
WITH proof AS (
    UPDATE oncebox_proof SET fingerprint = $5 WHERE lane = $1 AND digest = $2 AND seq = $4
), message AS (
    DELETE FROM oncebox_message WHERE lane = $4 & 63 AND seq = $4
), outcome AS (
    UPDATE oncebox_outcome SET error = NULL WHERE lane = $4 & 63 AND seq = $4 AND error IS NOT NULL
), attempt AS (
    DELETE FROM oncebox_attempt WHERE lane = $4 & 63 AND seq = $4
), quarantined AS (
    DELETE FROM oncebox_quarantine WHERE digest = $2 AND inbox = $3 RETURNING 1
), mark AS (
    UPDATE oncebox_mark SET result = NULL, fingerprint = NULL WHERE lane = $1 AND digest = $2
)
SELECT (SELECT count(*) FROM quarantined), EXISTS (SELECT 1 FROM oncebox_mark WHERE lane = $1 AND digest = $2);

-- name: erase_answers
-- Reads the answers of earlier operations on a key.
-- $1 digest bytea
-- Index: oncebox_operation_digest.
SELECT id, answer FROM oncebox_operation WHERE digest = $1 AND answer <> '';
