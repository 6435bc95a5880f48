-- Makes a released entry wait that does not run yet.
-- ?1 seq
-- ?2 handler
-- Index: primary key of oncebox_entry.
UPDATE oncebox_entry SET due = 9223372036854775807, not_before = due WHERE seq = ?1 AND handler = ?2 AND +due <> 9223372036854775807
