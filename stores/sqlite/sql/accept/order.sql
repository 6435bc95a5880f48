-- Reads the order of a stored message: of several deliveries, the first one decides.
-- ?1 seq
-- Index: primary key of oncebox_message.
SELECT tenant, source, ordering_key FROM oncebox_message WHERE seq = ?1
