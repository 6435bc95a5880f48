-- Adds entries without an order to messages that the same transaction stored with one: their handlers ignore it. `accept`
-- added the other entries.
-- $1 now bigint or NULL (server clock)
-- $2 seq bigint[] (by entry)
-- $3 handler smallint[]
-- $4 delay bigint[] in ms
-- Index: none.
-- Lock order: none. No other transaction sees the messages yet.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
)
INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler)
SELECT e.seq, now + e.delay, now + e.delay, e.seq & 63, e.handler
FROM moment, unnest($2::int8[], $3::int2[], $4::int8[]) AS e (seq, handler, delay)
