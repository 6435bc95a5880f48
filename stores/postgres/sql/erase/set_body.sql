-- Replaces the request of an operation.
-- $1 id uuid
-- $2 body text: JSON
-- Index: unique (id) of oncebox_operation.
-- Lock order: the row of oncebox_operation.
UPDATE oncebox_operation SET body = $2 WHERE id = $1
