-- Reads the answers of earlier operations on a key.
-- ?1 digest
-- Index: oncebox_operation_digest.
SELECT number, answer FROM oncebox_operation WHERE digest = ?1
