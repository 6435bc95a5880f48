-- Reads the order key of an unfinished entry.
-- $1 seq bigint
-- $2 handler smallint
-- Index: primary keys of oncebox_entry, oncebox_scheduled and oncebox_poisoned.
SELECT order_key FROM oncebox_entry WHERE lane = $1 & 63 AND handler = $2 AND seq = $1
UNION ALL SELECT order_key FROM oncebox_scheduled WHERE lane = $1 & 63 AND seq = $1 AND handler = $2
UNION ALL SELECT order_key FROM oncebox_poisoned WHERE lane = $1 & 63 AND seq = $1 AND handler = $2
