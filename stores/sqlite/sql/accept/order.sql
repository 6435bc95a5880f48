-- What the order of a stored message depends on: of several deliveries of a message, the first one counts.
SELECT tenant, source, ordering_key FROM oncebox_message WHERE seq = ?1
