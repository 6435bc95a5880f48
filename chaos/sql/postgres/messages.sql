-- Sequence number and id of every message.
-- Index: primary key of oncebox_message.
SELECT seq, convert_from(id, 'UTF8') FROM oncebox_message ORDER BY seq
