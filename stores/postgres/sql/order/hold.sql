-- Makes whoever was let go wait again. Waits for a claim that is taking it: then it runs, and is left alone. Needs the lock of the
-- line. $1 lane, $2 handler, $3 order key.
WITH back AS (
    DELETE FROM oncebox_entry WHERE lane = $1 AND handler = $2 AND order_key = $3 AND token IS NULL
    RETURNING seq, due, lane, handler, order_key
), waits AS (
    INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, order_key)
    SELECT seq, 9223372036854775807, due, lane, handler, order_key FROM back
)
UPDATE oncebox_scheduled SET due = 9223372036854775807, not_before = due
WHERE lane = $1 AND handler = $2 AND order_key = $3 AND due <> 9223372036854775807
