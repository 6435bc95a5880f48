-- Adds handlers to what a message has entries for, and their entries. $1 now or nothing, $2 lane and $3 digest of the key,
-- $4 number, $5 all handlers, $6 the added ones, $7 order key, $8 delay.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), added AS (
    UPDATE oncebox_proof SET handlers = $5 WHERE lane = $2 AND digest = $3
)
INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, order_key)
SELECT $4, CASE WHEN $7::bytea IS NULL THEN now + $8 ELSE 9223372036854775807 END, now + $8, $4 & 63, handler, $7
FROM moment, unnest($6::int2[]) AS e (handler)
