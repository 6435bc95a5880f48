-- Reads the requests of earlier operations that may name an id or an ordering key.
-- $1 inbox smallint
-- $2 verb text[]
-- Index: none; reads all operations.
SELECT id, body FROM oncebox_operation WHERE inbox = $1 AND verb = ANY ($2)
