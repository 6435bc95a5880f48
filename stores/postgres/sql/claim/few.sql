-- Leases everything that is due in some lanes, if it is little and none of it waited before. Otherwise leases nothing,
-- and the caller runs `claim`: its many parts take the server longer than the work itself, if there is one message. Not
-- for handlers with several keys. Returns a row per entry with its message, or a row with the number of leased rows: 0,
-- or NULL if the caller must run `claim`.
-- $1 now bigint or NULL (server clock)
-- $2 claim_id uuid
-- $3 lease bigint in ms
-- $4 lane smallint[] (by target)
-- $5 handler smallint[]
-- $6 want integer[]: index of the request it serves
-- $7 least bigint[]: seq to scan from
-- $8 few bigint[]: limit (by want)
-- Index: primary key of oncebox_entry, oncebox_scheduled_due, primary key of oncebox_message.
-- Lock order: oncebox_entry; skips locked rows. Then oncebox_claim.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), look AS MATERIALIZED (
    SELECT l.*, m.now
    FROM moment m, unnest($4::int2[], $5::int2[], $6::int4[], $7::int8[]) AS l (lane, handler, want, least)
    JOIN oncebox_handler h ON h.id = l.handler AND NOT h.paused
), seen AS MATERIALIZED (
    -- Not locked yet: entries that stay for `claim` must not be hidden from other claims.
    SELECT l.want, r.tid
    FROM look l CROSS JOIN LATERAL (
        SELECT e.ctid AS tid FROM oncebox_entry e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.seq >= l.least AND e.token IS NULL
        ORDER BY e.seq LIMIT ($8::int8[])[l.want] + 1
    ) r
), few AS MATERIALIZED (
    SELECT NOT EXISTS (SELECT 1 FROM oncebox_claim WHERE claim_id = $2)
       AND NOT EXISTS (
           SELECT 1 FROM look l CROSS JOIN LATERAL (
               SELECT 1 FROM oncebox_scheduled e
               WHERE e.lane = l.lane AND e.handler = l.handler AND e.crashes = 0 AND e.due <= l.now
                 AND e.due <> 9223372036854775807
               ORDER BY e.due, e.seq LIMIT 1
           ) r
       )
       AND NOT EXISTS (SELECT 1 FROM seen GROUP BY want HAVING count(*) > ($8::int8[])[want]) AS yes
), untaken AS MATERIALIZED (
    SELECT e.ctid AS tid FROM oncebox_entry e
    WHERE e.ctid = ANY (ARRAY(SELECT s.tid FROM few f, seen s WHERE f.yes)) AND e.token IS NULL
    FOR UPDATE SKIP LOCKED
), leased AS (
    UPDATE oncebox_entry e
    SET token = (SELECT nextval('oncebox_token')), claimed_at = m.now, lease_until = m.now + $3, claim_id = $2
    FROM moment m
    WHERE e.ctid = ANY (ARRAY(SELECT tid FROM untaken))
    RETURNING e.seq, e.lane, e.handler, e.due, e.order_key, e.token
), noted AS (
    INSERT INTO oncebox_claim AS claim (claim_id, until, lanes, handlers, firsts, lasts)
    SELECT $2, m.now + $3, r.lanes, r.handlers, r.seqs, r.seqs
    FROM moment m, (
        SELECT array_agg(lane) AS lanes, array_agg(handler) AS handlers, array_agg(seq) AS seqs FROM leased HAVING count(*) > 0
    ) r
    ON CONFLICT (claim_id) DO UPDATE
    SET lanes = claim.lanes || excluded.lanes, handlers = claim.handlers || excluded.handlers,
        firsts = claim.firsts || excluded.firsts, lasts = claim.lasts || excluded.lasts
    -- More than this statement leased: the same claim ran on another connection, and holds other entries.
    RETURNING cardinality(claim.lanes) > (SELECT count(*) FROM leased) AS held
)
SELECT m.seq, m.digest, m.received_at, m.time, m.source, m.id, m.type, m.ordering_key, m.headers, m.payload, m.tenant,
       l.handler, l.token, o.now, CASE WHEN l.seq IS NOT NULL THEN ARRAY[l.seq] END, ARRAY[l.due], ARRAY[l.order_key],
       NULL::int4[], NULL::int4[], NULL::int4[],
       CASE WHEN f.yes AND NOT EXISTS (SELECT 1 FROM noted WHERE held) THEN (l.seq IS NOT NULL)::int4::int8 END
FROM moment o, few f
LEFT JOIN leased l ON true
LEFT JOIN LATERAL (SELECT * FROM oncebox_message m WHERE m.lane = l.lane AND m.seq = l.seq LIMIT 1) m ON true
