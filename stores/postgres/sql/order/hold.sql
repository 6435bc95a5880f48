-- Makes the released entry of a queue wait again. Waits for a claim that is taking it: then it runs, and stays as it is.
-- $1 lane smallint
-- $2 handler smallint
-- $3 order_key bytea
-- Index: oncebox_entry_order, oncebox_scheduled_order.
-- Lock order: needs the lock of the queue (`lock`); then oncebox_entry, then oncebox_scheduled.
WITH back AS (
    DELETE FROM oncebox_entry WHERE lane = $1 AND handler = $2 AND order_key = $3 AND token IS NULL
    RETURNING seq, due, lane, handler, order_key
), waits AS (
    INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, order_key)
    SELECT seq, 9223372036854775807, due, lane, handler, order_key FROM back
)
UPDATE oncebox_scheduled SET due = 9223372036854775807, not_before = due
WHERE lane = $1 AND handler = $2 AND order_key = $3 AND due <> 9223372036854775807
