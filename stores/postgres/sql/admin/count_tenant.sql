-- Counts the entries of one tenant by handler and status. Only the latest generation of a replayed entry counts.
-- $1 inbox smallint
-- $2 tenant text
-- Index: oncebox_proof_tenant, then the primary key of oncebox_outcome; unfinished entries are scanned.
WITH theirs AS MATERIALIZED (
    SELECT seq FROM oncebox_proof WHERE tenant = $2 AND inbox = $1
), unfinished AS MATERIALIZED (
    SELECT e.seq, e.handler, CASE WHEN e.token IS NULL THEN 'pending' ELSE 'running' END AS status
    FROM oncebox_entry e JOIN theirs t ON t.seq = e.seq
    UNION ALL SELECT e.seq, e.handler, 'pending' FROM oncebox_scheduled e JOIN theirs t ON t.seq = e.seq
    UNION ALL SELECT e.seq, e.handler, 'poisoned' FROM oncebox_poisoned e JOIN theirs t ON t.seq = e.seq
), finished AS (
    SELECT DISTINCT ON (o.seq, o.handler) o.seq, o.handler, o.status
    FROM oncebox_outcome o JOIN theirs t ON t.seq = o.seq AND o.lane = t.seq & 63
    WHERE NOT EXISTS (SELECT 1 FROM unfinished u WHERE u.seq = o.seq AND u.handler = o.handler)
    ORDER BY o.seq, o.handler, o.generation DESC
)
SELECT h.key, c.status, count(*)
FROM (SELECT handler, status FROM unfinished UNION ALL SELECT handler, status FROM finished) c
JOIN oncebox_handler h ON h.id = c.handler
GROUP BY h.key, c.status
