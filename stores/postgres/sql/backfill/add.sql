-- Adds an entry for one handler to each of some messages. $1 now or nothing, $2 handler; by message: $3 lane and $4 digest of
-- its key, $5 number, $6 all its handlers, $7 order key.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), message AS MATERIALIZED (
    SELECT * FROM unnest($3::int2[], $4::bytea[], $5::int8[], $6::bytea[], $7::bytea[])
         AS m (lane, digest, seq, handlers, order_key)
), noted AS (
    -- An array of one: it can only be looked up, even if the server takes the table for empty.
    UPDATE oncebox_proof p SET handlers = m.handlers FROM message m
    WHERE p.lane = ANY (ARRAY[m.lane]) AND p.digest = m.digest
)
INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, order_key)
-- One with an order key is parked: whether it may go is found out by who arranges its line.
SELECT m.seq, CASE WHEN m.order_key IS NULL THEN now ELSE 9223372036854775807 END, now, m.seq & 63, $2::int2, m.order_key
FROM moment, message m
