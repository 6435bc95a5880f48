-- Reads the duplicate counts of a message.
-- $1 seq bigint
-- Index: primary key of oncebox_duplicate.
SELECT count, first, last, varied FROM oncebox_duplicate WHERE lane = $1 & 63 AND seq = $1
