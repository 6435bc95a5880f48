-- Stored messages in the order of acceptance, whatever inbox they are of, and whether their content was erased.
-- ?1 the number to go on after, ?2 how many, ?3 the fingerprint of what was erased.
SELECT seq, inbox, type, handlers, time, fingerprint = ?3 FROM oncebox_message WHERE seq > ?1 ORDER BY seq LIMIT ?2
