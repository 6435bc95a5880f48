-- Resumes an order key that an operator paused: deletes its row.
-- $1 lane smallint
-- $2 handler smallint
-- $3 order_key bytea
-- Index: oncebox_poisoned_order.
-- Lock order: needs the lock of the queue (`lock`).
DELETE FROM oncebox_poisoned WHERE lane = $1 AND handler = $2 AND order_key = $3 AND in_line = 'blocks' AND seq < 68719476736
