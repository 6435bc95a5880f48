-- Reads the answers of earlier operations on a key.
-- $1 digest bytea
-- Index: oncebox_operation_digest.
SELECT id, answer FROM oncebox_operation WHERE digest = $1 AND answer <> ''
