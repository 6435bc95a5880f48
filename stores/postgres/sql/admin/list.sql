-- Lists entries after a position, by number and handler. Reads at most $3 entries of each kind and lane, whatever the
-- filter. Returns rows of other inboxes and of replayed generations too, so that the caller knows how far this read. The
-- caller filters by everything but the status.
-- $1 seq bigint: to continue after
-- $2 handler text: key to continue after
-- $3 limit bigint
-- $4 statuses text[]
-- $5 lanes smallint[]: all of them
-- $6 handlers smallint[]: of the inbox
-- Index: the primary keys of the tables of entries; running entries through oncebox_claim.
WITH looked AS MATERIALIZED (
    SELECT e.*, h.inbox, h.key, h.origin
    FROM (
        SELECT r.seq, r.handler, 'pending' AS status, coalesce(r.attempts, 0) AS attempts, coalesce(r.crashes, 0) AS crashes,
               coalesce(r.generation, 0) AS generation, r.due AS at, NULL::text AS reason, r.error, NULL::text AS in_line
        FROM unnest($5::int2[]) l (lane) CROSS JOIN unnest($6::int2[]) k (handler) CROSS JOIN LATERAL (
            SELECT * FROM oncebox_entry e
            WHERE e.lane = l.lane AND e.handler = k.handler AND e.seq >= $1 AND e.token IS NULL
              AND (e.seq > $1 OR (SELECT h.key FROM oncebox_handler h WHERE h.id = e.handler) COLLATE "C" > $2)
            ORDER BY e.seq LIMIT $3
        ) r
        WHERE 'pending' = ANY ($4::text[])
        UNION ALL
        -- Ranges of a claim may overlap.
        SELECT DISTINCT e.seq, e.handler, 'running', coalesce(e.attempts, 0), coalesce(e.crashes, 0), coalesce(e.generation, 0),
               e.lease_until, NULL, e.error, NULL
        FROM oncebox_claim c CROSS JOIN LATERAL unnest(c.lanes, c.handlers, c.firsts, c.lasts) AS l (lane, handler, first, last)
        JOIN oncebox_entry e ON e.lane = l.lane AND e.handler = l.handler AND e.seq BETWEEN l.first AND l.last AND e.claim_id = c.claim_id
        WHERE 'running' = ANY ($4::text[]) AND e.seq >= $1
        UNION ALL
        SELECT r.seq, r.handler, 'pending', r.attempts, r.crashes, r.generation, r.due, NULL, r.error, NULL
        FROM unnest($5::int2[]) l (lane) CROSS JOIN LATERAL (
            SELECT * FROM oncebox_scheduled e WHERE e.lane = l.lane AND e.seq >= $1
              AND (e.seq > $1 OR (SELECT h.key FROM oncebox_handler h WHERE h.id = e.handler) COLLATE "C" > $2)
            -- Reads all entries of a message: the order of its handlers differs between tables and lists.
            ORDER BY e.seq FETCH FIRST ($3) ROWS WITH TIES
        ) r
        WHERE 'pending' = ANY ($4::text[])
        UNION ALL
        SELECT r.seq, r.handler, 'poisoned', r.attempts, r.crashes, r.generation, r.at, r.reason, r.error, r.in_line
        FROM unnest($5::int2[]) l (lane) CROSS JOIN LATERAL (
            SELECT * FROM oncebox_poisoned e WHERE e.lane = l.lane AND e.seq >= $1
              AND (e.seq > $1 OR (SELECT h.key FROM oncebox_handler h WHERE h.id = e.handler) COLLATE "C" > $2)
            -- Reads all entries of a message: the order of its handlers differs between tables and lists.
            ORDER BY e.seq FETCH FIRST ($3) ROWS WITH TIES
        ) r
        WHERE 'poisoned' = ANY ($4::text[])
        UNION ALL
        SELECT r.seq, r.handler, r.status, r.attempts, r.crashes, r.generation, r.at, NULL, r.error, NULL
        FROM unnest($5::int2[]) l (lane) CROSS JOIN LATERAL (
            SELECT * FROM oncebox_outcome e WHERE e.lane = l.lane AND e.seq >= $1
              AND (e.seq > $1 OR (SELECT h.key FROM oncebox_handler h WHERE h.id = e.handler) COLLATE "C" > $2)
            ORDER BY e.seq FETCH FIRST ($3) ROWS WITH TIES
        ) r
        WHERE $4::text[] && ARRAY['completed', 'discarded']
    ) e
    JOIN oncebox_handler h ON h.id = e.handler
    WHERE e.seq > $1 OR h.key COLLATE "C" > $2
    ORDER BY e.seq, h.key COLLATE "C", e.generation DESC LIMIT $3
)
SELECT e.seq, e.key, e.status, e.attempts, e.crashes, e.generation, e.at, e.reason, e.error, e.in_line, p.digest, p.received_at,
       p.tenant, m.source, m.id, m.type, m.ordering_key, e.inbox, e.status IN ('completed', 'discarded') AND (
           EXISTS (SELECT 1 FROM oncebox_outcome n
               WHERE n.lane = e.seq & 63 AND n.seq = e.seq AND n.handler = e.handler AND n.generation > e.generation)
           OR EXISTS (SELECT 1 FROM oncebox_scheduled n WHERE n.lane = e.seq & 63 AND n.seq = e.seq AND n.handler = e.handler)
           OR EXISTS (SELECT 1 FROM oncebox_entry n WHERE n.lane = e.seq & 63 AND n.seq = e.seq AND n.handler = e.handler)
           OR EXISTS (SELECT 1 FROM oncebox_poisoned n WHERE n.lane = e.seq & 63 AND n.seq = e.seq AND n.handler = e.handler)
       ), e.origin
FROM looked e
LEFT JOIN LATERAL (SELECT * FROM oncebox_proof p WHERE p.seq = e.seq LIMIT 1) p ON true
LEFT JOIN LATERAL (
    SELECT m.source, m.id, m.type, m.ordering_key FROM oncebox_message m WHERE m.lane = e.seq & 63 AND m.seq = e.seq LIMIT 1
) m ON true
ORDER BY e.seq, e.key COLLATE "C", e.generation DESC
