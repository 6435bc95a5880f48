-- name: erase
-- Deletes the content of a message and the messages quarantined under its key. The proof stays, with the fingerprint of
-- erased content. Deletes the messages from the lists of lost ones, too. Returns the number of quarantined messages, true
-- if the key has a mark, and the ids and ordering keys of all deleted messages.
-- $1 lane smallint: of the key
-- $2 digest bytea
-- $3 inbox smallint
-- $4 seq bigint or NULL
-- $5 fingerprint bytea: of erased content
-- Index: primary keys; unique (digest, fingerprint) of oncebox_quarantine.
-- Lock order: the row of oncebox_proof, which `admin_hold` locked first; last, rows of oncebox_timeline.
WITH proof AS (
    UPDATE oncebox_proof SET fingerprint = $5 WHERE lane = $1 AND digest = $2 AND seq = $4
), message AS (
    DELETE FROM oncebox_message WHERE lane = $4 & 63 AND seq = $4 RETURNING source, id, ordering_key
), outcome AS (
    UPDATE oncebox_outcome SET error = NULL WHERE lane = $4 & 63 AND seq = $4 AND error IS NOT NULL
), attempt AS (
    DELETE FROM oncebox_attempt WHERE lane = $4 & 63 AND seq = $4
), quarantined AS (
    DELETE FROM oncebox_quarantine WHERE digest = $2 AND inbox = $3 RETURNING source, message_id AS id, ordering_key
), mark AS (
    UPDATE oncebox_mark SET result = NULL, fingerprint = NULL WHERE lane = $1 AND digest = $2
), deleted AS (
    SELECT * FROM message UNION ALL SELECT * FROM quarantined
), lost AS (
    UPDATE oncebox_timeline t
    SET (lost_sources, lost_ids) = (
        SELECT coalesce(array_agg(l.source ORDER BY l.place), '{}'), coalesce(array_agg(l.id ORDER BY l.place), '{}')
        FROM unnest(t.lost_sources, t.lost_ids) WITH ORDINALITY AS l (source, id, place)
        WHERE NOT EXISTS (SELECT 1 FROM deleted d WHERE d.source = l.source AND d.id = l.id)
    )
    WHERE EXISTS (SELECT 1 FROM deleted d WHERE d.id = ANY (t.lost_ids))
)
SELECT (SELECT count(*) FROM quarantined), EXISTS (SELECT 1 FROM oncebox_mark WHERE lane = $1 AND digest = $2),
    ARRAY(SELECT id FROM deleted), ARRAY(SELECT ordering_key FROM deleted WHERE ordering_key IS NOT NULL);

-- name: erase_answers
-- Reads the answers of earlier operations on a key.
-- $1 digest bytea
-- Index: oncebox_operation_digest.
SELECT id, answer FROM oncebox_operation WHERE digest = $1 AND answer <> '';

-- name: erase_bodies
-- Reads the requests of earlier operations that may name an id or an ordering key.
-- $1 inbox smallint
-- $2 verb text[]
-- Index: none; reads all operations.
SELECT id, body FROM oncebox_operation WHERE inbox = $1 AND verb = ANY ($2);

-- name: erase_set_body
-- Replaces the request of an operation.
-- $1 id uuid
-- $2 body text: JSON
-- Index: unique (id) of oncebox_operation.
-- Lock order: the row of oncebox_operation.
UPDATE oncebox_operation SET body = $2 WHERE id = $1;
