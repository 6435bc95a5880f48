-- Releases a waiting entry: sets the due time that it asked for, or now if that is over. The greatest integer stands for
-- waiting entries.
-- ?1 seq
-- ?2 handler
-- ?3 now
-- Index: primary key of oncebox_entry.
UPDATE oncebox_entry SET due = min(max(not_before, ?3), 9223372036854775806), not_before = 0
WHERE seq = ?1 AND handler = ?2 AND +due = 9223372036854775807
