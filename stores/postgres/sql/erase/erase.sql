-- Removes the content of a message and what was quarantined under its key. The proof of the key stays, with a fingerprint that says so.
-- How many were quarantined, and whether the key has a mark.
-- $1 lane of the key, $2 key, $3 inbox, $4 number or nothing, $5 fingerprint of what is erased.
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
SELECT (SELECT count(*) FROM quarantined), EXISTS (SELECT 1 FROM oncebox_mark WHERE lane = $1 AND digest = $2)
