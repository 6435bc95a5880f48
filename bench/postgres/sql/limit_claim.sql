-- Leases the next entries for a minute, and returns them with their messages.
-- $1 seq bigint, the first to read
-- $2 now bigint in ms
-- $3 limit bigint
-- Index: primary keys of work and message.
-- Lock order: work by seq; skips locked rows.
WITH picked AS MATERIALIZED (
    SELECT ctid FROM work WHERE seq >= $1 AND lease_until < $2 ORDER BY seq LIMIT $3 FOR UPDATE SKIP LOCKED
), leased AS (
    UPDATE work SET lease_until = $2 + 60000, token = (SELECT nextval('token'))
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM picked)) RETURNING seq, token
)
SELECT l.seq, l.token, m.source, m.id, m.type, m.payload
FROM leased l CROSS JOIN LATERAL (SELECT * FROM message m WHERE m.seq = l.seq LIMIT 1) m
