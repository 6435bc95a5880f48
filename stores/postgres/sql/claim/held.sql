-- Returns the entries that a claim id holds, in the rows of `claim`, and true for a run that began as the only one of
-- its worker.
-- $1 claim_id uuid
-- Index: primary keys of oncebox_claim, oncebox_entry and oncebox_message.
WITH held AS MATERIALIZED (
    -- Entries that a claim added may lie between those that it already held.
    SELECT DISTINCT ON (e.lane, e.handler, e.seq) e.*
    FROM oncebox_claim c
    CROSS JOIN LATERAL unnest(c.lanes, c.handlers, c.firsts, c.lasts) AS l (lane, handler, first, last)
    -- OFFSET keeps the planner from joining from the whole table.
    CROSS JOIN LATERAL (
        SELECT * FROM oncebox_entry e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.seq BETWEEN l.first AND l.last AND e.claim_id = c.claim_id OFFSET 0
    ) e
    WHERE c.claim_id = $1
)
SELECT m.seq, m.digest, m.received_at, m.time, m.source, m.id, m.type, m.ordering_key, m.headers, m.payload, m.tenant,
       NULL::int2, NULL::int8, NULL::int8, NULL::int8[], NULL::int8[], NULL::bytea[], NULL::int4[], NULL::int4[], NULL::int4[],
       NULL::int8, NULL::bool
FROM held h CROSS JOIN LATERAL (
    SELECT * FROM oncebox_message m WHERE m.lane = h.lane AND m.seq = h.seq LIMIT 1
) m
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       h.handler, h.token, h.claimed_at, array_agg(h.seq), array_agg(h.due), array_agg(h.order_key),
       array_agg(coalesce(h.attempts, 0)), array_agg(coalesce(h.crashes, 0)), array_agg(coalesce(h.generation, 0)), NULL,
       h.alone
FROM held h GROUP BY h.handler, h.token, h.claimed_at, h.alone
