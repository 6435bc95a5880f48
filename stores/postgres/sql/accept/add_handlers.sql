-- Adds handlers to a known message: updates its proof and inserts their entries.
-- $1 now bigint or NULL (server clock)
-- $2 lane smallint: of the key
-- $3 digest bytea
-- $4 seq bigint
-- $5 handlers bytea: all of them
-- $6 handlers smallint[]: to add
-- $7 order_key bytea or NULL
-- $8 delay bigint in ms
-- Index: primary key of oncebox_proof.
-- Lock order: the row of oncebox_proof. `accept/known` locks it first.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), added AS (
    UPDATE oncebox_proof SET handlers = $5 WHERE lane = $2 AND digest = $3
)
INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, order_key)
SELECT $4, CASE WHEN $7::bytea IS NULL THEN now + $8 ELSE 9223372036854775807 END, now + $8, $4 & 63, handler, $7
FROM moment, unnest($6::int2[]) AS e (handler)
