-- Adds an entry for one handler to each of some messages. An entry with an order key waits: the code that arranges its
-- queue releases it.
-- $1 now bigint or NULL (server clock)
-- $2 handler smallint
-- $3 lane smallint[]: of the key (by message)
-- $4 digest bytea[]
-- $5 seq bigint[]
-- $6 handlers bytea[]: all of them
-- $7 order_key bytea[] or NULL
-- Index: primary key of oncebox_proof.
-- Lock order: the rows of oncebox_proof, which `hold` locked by number.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), message AS MATERIALIZED (
    SELECT * FROM unnest($3::int2[], $4::bytea[], $5::int8[], $6::bytea[], $7::bytea[])
         AS m (lane, digest, seq, handlers, order_key)
), noted AS (
    -- An array of one: the server can only look rows up, even if it believes that the table is empty.
    UPDATE oncebox_proof p SET handlers = m.handlers FROM message m
    WHERE p.lane = ANY (ARRAY[m.lane]) AND p.digest = m.digest
)
INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, order_key)
-- An entry with an order key waits: the code that arranges its queue releases it.
SELECT m.seq, CASE WHEN m.order_key IS NULL THEN now ELSE 9223372036854775807 END, now, m.seq & 63, $2::int2, m.order_key
FROM moment, message m
