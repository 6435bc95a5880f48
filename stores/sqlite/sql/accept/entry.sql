-- Inserts an entry of a new message.
-- ?1 handler
-- ?2 due
-- ?3 seq
INSERT INTO oncebox_entry (handler, due, seq) VALUES (?1, ?2, ?3)
