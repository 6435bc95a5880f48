-- Reads the fingerprint, handlers and receive time of a known message.
-- ?1 seq
-- Index: primary key of oncebox_message.
SELECT fingerprint, handlers, received_at FROM oncebox_message WHERE seq = ?1
