-- Reads an earlier operation with an id.
-- $1 id uuid
-- Index: unique (id) of oncebox_operation.
SELECT body, reason, answer FROM oncebox_operation WHERE id = $1
