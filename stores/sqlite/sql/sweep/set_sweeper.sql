-- Gives a sweep the turn, or ends it.
-- ?1 inbox
-- ?2 sweep or NULL
-- ?3 until
-- Index: primary key of oncebox_inbox.
UPDATE oncebox_inbox SET sweeper = ?2, sweeper_until = ?3 WHERE id = ?1
