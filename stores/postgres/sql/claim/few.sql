-- Leases all that is due in some places, if it is little and none of it has waited before. Where that is not so, or the claim id holds
-- something already, nothing is leased, and the claim proper is asked: with its many parts that takes the server longer than the work
-- itself, if there is one message. $1 now or nothing, $2 claim id, $3 lease; by place to look at: $4 lane, $5 handler, $6 which want it
-- is for, $7 the least number of interest; by want: $8 how many are few. Not for handlers that have several keys.
--
-- Answers with an entry and its message in a row, or with a row that says how many rows were leased: none, or nothing for that if the
-- claim proper is to be asked.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), look AS MATERIALIZED (
    SELECT l.*, m.now
    FROM moment m, unnest($4::int2[], $5::int2[], $6::int4[], $7::int8[]) AS l (lane, handler, want, least)
    JOIN oncebox_handler h ON h.id = l.handler AND NOT h.paused
), seen AS MATERIALIZED (
    -- Not locked yet: what is left to the claim proper must not be hidden from others meanwhile.
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
    -- More than this has leased: the same claim was on its way on another connection, and holds something else.
    RETURNING cardinality(claim.lanes) > (SELECT count(*) FROM leased) AS held
)
SELECT m.seq, m.digest, m.received_at, m.time, m.source, m.id, m.type, m.ordering_key, m.headers, m.payload, m.tenant,
       l.handler, l.token, o.now, CASE WHEN l.seq IS NOT NULL THEN ARRAY[l.seq] END, ARRAY[l.due], ARRAY[l.order_key],
       NULL::int4[], NULL::int4[], NULL::int4[],
       CASE WHEN f.yes AND NOT EXISTS (SELECT 1 FROM noted WHERE held) THEN (l.seq IS NOT NULL)::int4::int8 END
FROM moment o, few f
LEFT JOIN leased l ON true
LEFT JOIN LATERAL (SELECT * FROM oncebox_message m WHERE m.lane = l.lane AND m.seq = l.seq LIMIT 1) m ON true
