-- Reads the sweep that has the turn.
-- ?1 inbox
-- Index: primary key of oncebox_inbox.
SELECT sweeper, sweeper_until FROM oncebox_inbox WHERE id = ?1
