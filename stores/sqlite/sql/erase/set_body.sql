-- Replaces the request of an operation.
-- ?1 number
-- ?2 body: JSON
-- Index: primary key of oncebox_operation.
UPDATE oncebox_operation SET body = ?2 WHERE number = ?1
