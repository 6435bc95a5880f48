-- Deletes the pending row of the entry that `take_one` took.
-- ?1 handler
-- ?2 due
-- ?3 seq
-- Index: primary key of oncebox_entry.
DELETE FROM oncebox_entry WHERE seq = ?3 AND handler = ?1 AND +due = ?2
