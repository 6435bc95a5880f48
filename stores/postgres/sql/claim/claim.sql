-- Leases due entries that crashed no worker, oldest due first. Returns the messages, then arrays with the entries of
-- each lane and handler, then the number of rows leased in place. Leases nothing, and returns NULL for that number, if
-- the claim id already holds entries and $12 is false. `:found` is `all` or `oldest`: it defines `fresh` (by lane and
-- handler) and `postponed`. `:first_of_line` is `first_of_line`.
-- $1 now bigint or NULL (server clock)
-- $2 claim_id uuid
-- $3 lease bigint in ms
-- $4 lane smallint[] (by target)
-- $5 handler smallint[]
-- $6 want integer[]: index of the request it serves
-- $7 want integer[] (by key of a renamed handler)
-- $8 handler smallint[]
-- $9 least bigint[]: seq to scan from (by target)
-- $10 limit bigint[]
-- $11 limit bigint[]: of entries that waited before
-- $12 continues boolean: true to add to the claim
-- $13 lanes bigint: their number
-- Index: primary key of oncebox_entry, oncebox_scheduled_due, primary key of oncebox_message.
-- Lock order: oncebox_scheduled by (due, seq), then oncebox_entry by seq; skips locked rows. Then oncebox_claim.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now,
           NOT $12 AND EXISTS (SELECT 1 FROM oncebox_claim WHERE claim_id = $2) AS held
), look AS MATERIALIZED (
    SELECT l.*, m.now, l.want = ANY ($7::int4[]) AS renamed
    FROM moment m, unnest($4::int2[], $5::int2[], $6::int4[], $9::int8[], $10::int8[], $11::int8[])
         AS l (lane, handler, want, least, at_most, others)
    JOIN oncebox_handler h ON h.id = l.handler AND NOT h.paused
    WHERE NOT m.held
), waiting AS MATERIALIZED (
    SELECT l.want, l.lane, l.handler, r.due, r.seq, r.tid
    FROM look l CROSS JOIN LATERAL (
        SELECT e.ctid AS tid, e.seq, e.due FROM oncebox_scheduled e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.crashes = 0 AND e.due <= l.now
          AND e.due <> 9223372036854775807
          AND :first_of_line
        ORDER BY e.due, e.seq LIMIT l.others FOR UPDATE SKIP LOCKED
    ) r
),
:found
, token AS MATERIALIZED (
    SELECT nextval('oncebox_token') AS token WHERE EXISTS (SELECT 1 FROM fresh) OR EXISTS (SELECT 1 FROM postponed)
), untouched AS (
    UPDATE oncebox_entry e SET token = t.token, claimed_at = m.now, lease_until = m.now + $3, claim_id = $2
    FROM moment m, token t
    WHERE e.ctid = ANY (ARRAY(SELECT unnest(tids) FROM fresh))
    RETURNING 1
), waited AS (
    DELETE FROM oncebox_scheduled e WHERE e.ctid = ANY (ARRAY(SELECT tid FROM postponed))
    RETURNING e.seq, e.lane, e.handler, e.due, e.attempts, e.crashes, e.generation, e.order_key, e.error
), moved AS (
    INSERT INTO oncebox_entry (seq, due, lane, handler, token, claimed_at, lease_until, claim_id, attempts, crashes, generation,
                        order_key, error)
    SELECT w.seq, w.due, w.lane, w.handler, t.token, m.now, m.now + $3, $2, w.attempts, w.crashes, w.generation, w.order_key,
           w.error
    FROM waited w, moment m, token t
), ranges AS (
    SELECT lane, handler, first, last FROM fresh WHERE (last - first) >> 18 <= 1
    UNION ALL
    -- Split: entries with an order key may have distant numbers.
    SELECT f.lane, f.handler, p.*
    FROM fresh f CROSS JOIN LATERAL (SELECT min(seq), max(seq) FROM unnest(f.seqs) AS s (seq) GROUP BY seq >> 18) p
    WHERE (f.last - f.first) >> 18 > 1
    UNION ALL
    SELECT lane, handler, seq, seq FROM waited
), noted AS (
    INSERT INTO oncebox_claim AS claim (claim_id, until, lanes, handlers, firsts, lasts)
    SELECT $2, m.now + $3, r.lanes, r.handlers, r.firsts, r.lasts
    FROM moment m, (
        SELECT array_agg(lane) AS lanes, array_agg(handler) AS handlers, array_agg(first) AS firsts, array_agg(last) AS lasts
        FROM ranges HAVING count(*) > 0
    ) r
    ON CONFLICT (claim_id) DO UPDATE
    SET lanes = claim.lanes || excluded.lanes, handlers = claim.handlers || excluded.handlers,
        firsts = claim.firsts || excluded.firsts, lasts = claim.lasts || excluded.lasts
), whole AS MATERIALIZED (
    -- True if all messages between the first and the last are its own: then one range reads them. All lanes share the
    -- numbers, so their distance shows where that is impossible.
    SELECT f.lane, f.first, f.last, f.seqs, CASE
               WHEN (f.last - f.first) >> 6 <= cardinality(f.seqs) * $13::int8 * 5 / 4
               THEN cardinality(f.seqs) = (
                   SELECT count(*) FROM oncebox_message m WHERE m.lane = f.lane AND m.seq BETWEEN f.first AND f.last)
               ELSE false
           END AS yes
    FROM fresh f
), single AS (
    SELECT lane, unnest(seqs) AS seq FROM whole WHERE NOT yes
    UNION ALL
    SELECT lane, seq FROM waited
)
SELECT m.seq, m.digest, m.received_at, m.time, m.source, m.id, m.type, m.ordering_key, m.headers, m.payload, m.tenant,
       NULL::int2, NULL::int8, NULL::int8, NULL::int8[], NULL::int8[], NULL::bytea[], NULL::int4[], NULL::int4[], NULL::int4[],
       NULL::int8
FROM whole w JOIN oncebox_message m ON m.lane = w.lane AND m.seq BETWEEN w.first AND w.last
WHERE w.yes
UNION ALL
SELECT m.seq, m.digest, m.received_at, m.time, m.source, m.id, m.type, m.ordering_key, m.headers, m.payload, m.tenant,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM single s JOIN oncebox_message m ON m.lane = s.lane AND m.seq = s.seq
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       f.handler, t.token, m.now, f.seqs, f.dues, f.order_keys, NULL, NULL, NULL, NULL
FROM moment m, token t, fresh f
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       w.handler, t.token, m.now, w.seqs, w.dues, w.order_keys, w.attempts, w.crashes, w.generations, NULL
FROM moment m, token t, (
    SELECT handler, array_agg(seq) AS seqs, array_agg(due) AS dues, array_agg(order_key) AS order_keys,
           array_agg(attempts) AS attempts, array_agg(crashes) AS crashes, array_agg(generation) AS generations
    FROM waited GROUP BY handler
) w
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       CASE WHEN NOT held THEN (SELECT count(*) FROM untouched) END
FROM moment
