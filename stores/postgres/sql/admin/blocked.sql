-- Lists order keys that a poisoned entry blocks, oldest first: a row per handler and order key, with the count behind
-- it.
-- $1 inbox smallint
-- $2 limit bigint
-- $3 tenant text or NULL
-- Index: oncebox_poisoned_line, oncebox_poisoned_order, oncebox_scheduled_order, oncebox_proof_seq.
WITH head AS MATERIALIZED (
    SELECT e.seq, e.lane, e.handler, e.order_key, e.at, e.in_line, h.key
    FROM oncebox_poisoned e JOIN oncebox_handler h ON h.id = e.handler
    WHERE h.inbox = $1 AND e.seq >= 68719476736 AND e.in_line IN ('blocks', 'parks') AND NOT EXISTS (
        SELECT 1 FROM oncebox_poisoned b
        WHERE b.lane = e.lane AND b.handler = e.handler AND b.order_key = e.order_key AND b.in_line IN ('blocks', 'parks')
          AND b.seq < e.seq AND b.seq >= 68719476736
    ) AND ($3::text IS NULL OR EXISTS (SELECT 1 FROM oncebox_proof p WHERE p.seq = e.seq AND p.tenant = $3))
    ORDER BY e.seq, h.key COLLATE "C" LIMIT $2
)
SELECT e.seq, e.key, e.at, e.in_line = 'parks', p.digest, m.ordering_key, b.count,
       (SELECT o.received_at FROM oncebox_proof o WHERE o.seq = b.first)
FROM head e JOIN oncebox_proof p ON p.seq = e.seq
LEFT JOIN oncebox_message m ON m.lane = e.lane AND m.seq = e.seq
CROSS JOIN LATERAL (
    SELECT count(*) AS count, min(w.seq) AS first FROM (
        SELECT o.seq FROM oncebox_scheduled o
        WHERE o.lane = e.lane AND o.handler = e.handler AND o.order_key = e.order_key AND o.seq > e.seq
        UNION ALL SELECT o.seq FROM oncebox_poisoned o
        WHERE o.lane = e.lane AND o.handler = e.handler AND o.order_key = e.order_key AND o.in_line = 'parked' AND o.seq > e.seq
    ) w
) b
ORDER BY e.seq, e.key COLLATE "C"
