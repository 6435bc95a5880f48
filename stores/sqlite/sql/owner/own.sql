-- Stores the owner of the entries that the first claim of a process took.
-- ?1 claim_id
-- ?2 owner
-- Index: primary key of oncebox_running.
UPDATE oncebox_running SET owner = ?2 WHERE claim_id = ?1
