-- Stores the progress of an operation, if no other process stored one since.
-- $1 id uuid
-- $2 noted integer: count of stored progresses as last read
-- $3 progress text: JSON
-- Index: unique (id) of oncebox_operation.
-- Lock order: the row of oncebox_operation.
UPDATE oncebox_operation SET progress = $3, noted = noted + 1 WHERE id = $1 AND noted = $2
