-- Gives one that waits a due time: the one it asked for, or now if that is over. The last of all times is for those that wait.
-- ?3 now.
UPDATE oncebox_entry SET due = min(max(not_before, ?3), 9223372036854775806), not_before = 0
WHERE seq = ?1 AND handler = ?2 AND +due = 9223372036854775807
