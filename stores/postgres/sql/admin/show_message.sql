-- Reads the content of a message.
-- $1 seq bigint
-- Index: primary key of oncebox_message.
SELECT time, source, id, type, ordering_key, headers, payload, tenant FROM oncebox_message WHERE lane = $1 & 63 AND seq = $1
