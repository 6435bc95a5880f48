-- Lets entries behind a poisoned entry run. Returns its order key.
-- ?1 seq
-- ?2 handler
-- Index: primary key of oncebox_poisoned.
UPDATE oncebox_poisoned SET in_line = 'skipped' WHERE seq = ?1 AND handler = ?2 RETURNING order_key
