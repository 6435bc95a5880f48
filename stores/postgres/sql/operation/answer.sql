-- Stores the answer of an operation.
-- $1 id uuid
-- $2 answer text: JSON
-- Index: unique (id) of oncebox_operation.
-- Lock order: the row of oncebox_operation.
UPDATE oncebox_operation SET answer = $2 WHERE id = $1
