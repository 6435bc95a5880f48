-- Pauses an order key: inserts a row before all entries of its queue, which blocks them. Its number is in no partition,
-- and so less than that of any message. Returns no row if the key is already paused.
-- $1 now bigint or NULL (server clock)
-- $2 lane bigint
-- $3 handler smallint
-- $4 order_key bytea
-- $5 error text: the order key as JSON
-- Index: oncebox_poisoned_order.
-- Lock order: needs the lock of the queue (`lock`).
INSERT INTO oncebox_poisoned (seq, token, at, attempts, crashes, generation, lane, handler, reason, order_key, in_line, error)
SELECT ((nextval('oncebox_counter') & 1073741823) << 6) | $2::int8, 0,
       coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), 0, 0, 0, $2, $3, 'paused', $4, 'blocks', $5
WHERE NOT EXISTS (
    SELECT 1 FROM oncebox_poisoned
    WHERE lane = $2 AND handler = $3 AND order_key = $4 AND in_line = 'blocks' AND seq < 68719476736
)
RETURNING seq
