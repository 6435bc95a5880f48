-- Reads which of some keys of an inbox are known.
-- $1 inbox smallint
-- $2 keys text[]
-- Index: primary key of oncebox_handler_key.
SELECT key, handler FROM oncebox_handler_key WHERE inbox = $1 AND key = ANY ($2::text[])
