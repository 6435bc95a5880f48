-- Leases due entries that crashed a worker: the one that waited longest, and others with the same suspicion.
-- `:first_of_line` is `first_of_line`.
-- $1 now bigint or NULL (server clock)
-- $2 claim_id uuid
-- $3 lease bigint in ms
-- $4 lane smallint[] (by target)
-- $5 handler smallint[]
-- $6 want integer[]: index of the request it serves
-- $7 want integer[] (by key of a renamed handler)
-- $8 handler smallint[]
-- $9 limit bigint[] (by want)
-- $10 limit bigint[] (by suspicion; the last one also for all above)
-- $11 alone boolean: true if the worker holds nothing else
-- Index: oncebox_scheduled_suspect.
-- Lock order: oncebox_scheduled by (due, seq); skips locked rows. Then oncebox_claim.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), look AS MATERIALIZED (
    SELECT p.lane, p.handler, p.want, p.want = ANY ($7::int4[]) AS renamed, m.now
    FROM moment m, unnest($4::int2[], $5::int2[], $6::int4[]) AS p (lane, handler, want)
    JOIN oncebox_handler h ON h.id = p.handler AND NOT h.paused
    WHERE NOT EXISTS (SELECT 1 FROM oncebox_claim WHERE claim_id = $2)
), oldest AS MATERIALIZED (
    -- Locked like the others: an entry that another claim is taking must not decide which are next.
    SELECT r.crashes
    FROM look l CROSS JOIN LATERAL (
        SELECT e.due, e.seq, e.crashes FROM oncebox_scheduled e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.crashes > 0 AND e.due <= l.now
          AND :first_of_line
        ORDER BY e.due, e.seq LIMIT 1 FOR UPDATE SKIP LOCKED
    ) r
    ORDER BY r.due, r.seq LIMIT 1
), due AS MATERIALIZED (
    SELECT r.tid, r.due, r.seq, l.want
    FROM oldest o, look l CROSS JOIN LATERAL (
        SELECT e.ctid AS tid, e.due, e.seq FROM oncebox_scheduled e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.crashes > 0 AND e.crashes = o.crashes AND e.due <= l.now
          AND :first_of_line
        ORDER BY e.due, e.seq LIMIT ($9::int8[])[l.want] FOR UPDATE SKIP LOCKED
    ) r
), suspect AS MATERIALIZED (
    SELECT d.tid
    FROM (SELECT d.*, row_number() OVER (PARTITION BY d.want ORDER BY d.due, d.seq) AS place FROM due d) d
    WHERE d.place <= ($9::int8[])[d.want]
    ORDER BY d.due, d.seq
    LIMIT (SELECT ($10::int8[])[least(o.crashes, cardinality($10::int8[]))] FROM oldest o)
), waited AS (
    DELETE FROM oncebox_scheduled e WHERE e.ctid = ANY (ARRAY(SELECT tid FROM suspect))
    RETURNING e.seq, e.lane, e.handler, e.due, e.attempts, e.crashes, e.generation, e.order_key, e.error
), noted AS (
    INSERT INTO oncebox_claim (claim_id, until, lanes, handlers, firsts, lasts)
    SELECT $2, m.now + $3, w.lanes, w.handlers, w.seqs, w.seqs
    FROM moment m, (
        SELECT array_agg(lane) AS lanes, array_agg(handler) AS handlers, array_agg(seq) AS seqs FROM waited HAVING count(*) > 0
    ) w
), token AS MATERIALIZED (
    SELECT nextval('oncebox_token') AS token FROM (SELECT 1 FROM suspect LIMIT 1) s
)
INSERT INTO oncebox_entry (seq, due, lane, handler, token, claimed_at, lease_until, claim_id, attempts, crashes, generation, order_key,
                    error, alone)
SELECT d.seq, d.due, d.lane, d.handler, t.token, m.now, m.now + $3, $2, d.attempts, d.crashes, d.generation,
       d.order_key, d.error, CASE WHEN $11 AND (SELECT count(*) FROM waited) = 1 THEN true END
FROM moment m, token t, waited d
