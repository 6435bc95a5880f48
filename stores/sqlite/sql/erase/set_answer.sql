-- Replaces the answer of an operation.
-- ?1 number
-- ?2 answer, JSON
-- Index: primary key of oncebox_operation.
UPDATE oncebox_operation SET answer = ?2 WHERE number = ?1
