-- Lets entries behind a poisoned entry run. Returns no row if it blocks none.
-- $1 seq bigint
-- $2 handler smallint
-- Index: primary key of oncebox_poisoned.
-- Lock order: the lock of the queue first, then the row of oncebox_poisoned.
UPDATE oncebox_poisoned SET in_line = 'skipped'
WHERE lane = $1 & 63 AND seq = $1 AND handler = $2 AND in_line IN ('blocks', 'parks')
RETURNING seq
