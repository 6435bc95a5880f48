-- Sequence number and id of every message.
-- Index: primary key of oncebox_message.
SELECT seq, CAST(id AS TEXT) FROM oncebox_message ORDER BY seq
