-- Stores the progress of an operation, if no other process stored one since.
-- ?1 id
-- ?2 noted, count of stored progresses as last read
-- ?3 progress, JSON
-- Index: unique (id) of oncebox_operation.
UPDATE oncebox_operation SET progress = ?3, noted = noted + 1 WHERE id = ?1 AND noted = ?2
