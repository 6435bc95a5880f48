-- name: claim_all
-- Leases all due entries that it finds and that crashed no worker. Entries that waited before go first, and no sort is
-- needed. Returns the messages, then arrays with the entries of each lane and handler, then the number of rows leased in
-- place. Leases nothing, and returns NULL for that number, if the claim id already holds entries and $12 is false. Under a
-- renamed handler an entry is taken only if it is first in its queue under all keys: no earlier one may wait or block under
-- another key, and none may run.
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
-- Index: primary key of oncebox_entry, oncebox_scheduled_due, primary key of oncebox_message. For a renamed handler also
-- oncebox_scheduled_order, oncebox_entry_order and oncebox_poisoned_order.
-- Lock order: oncebox_scheduled by (due, seq), then oncebox_entry by number within lane and handler; skips locked
-- rows. Then oncebox_claim.
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
          AND (e.order_key IS NULL OR NOT l.renamed OR NOT EXISTS (
              SELECT 1 FROM unnest($7::int4[], $8::int2[]) AS k (want, handler)
              WHERE k.want = l.want AND k.handler <> e.handler AND (
                  EXISTS (SELECT 1 FROM oncebox_scheduled o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key AND o.seq < e.seq)
                  OR EXISTS (SELECT 1 FROM oncebox_entry o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
                        AND (o.token IS NOT NULL OR o.seq < e.seq))
                  OR EXISTS (SELECT 1 FROM oncebox_poisoned o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
                        AND o.in_line IN ('blocks', 'parks') AND o.seq < e.seq)
              )
          ))
        ORDER BY e.due, e.seq LIMIT l.others FOR UPDATE SKIP LOCKED
    ) r
), postponed AS MATERIALIZED (
    SELECT tid FROM waiting
), fresh AS MATERIALIZED (
    SELECT l.lane, l.handler, r.*
    FROM look l CROSS JOIN LATERAL (
        SELECT array_agg(e.tid) AS tids, min(e.seq) AS first, max(e.seq) AS last, array_agg(e.seq) AS seqs,
               array_agg(e.due) AS dues, array_agg(e.order_key) AS order_keys
        FROM (
            SELECT e.ctid AS tid, e.seq, e.due, e.order_key FROM oncebox_entry e
            WHERE e.lane = l.lane AND e.handler = l.handler AND e.seq >= l.least AND e.token IS NULL
              AND (e.order_key IS NULL OR NOT l.renamed OR NOT EXISTS (
                  SELECT 1 FROM unnest($7::int4[], $8::int2[]) AS k (want, handler)
                  WHERE k.want = l.want AND k.handler <> e.handler AND (
                      EXISTS (SELECT 1 FROM oncebox_scheduled o
                          WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key AND o.seq < e.seq)
                      OR EXISTS (SELECT 1 FROM oncebox_entry o
                          WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
                            AND (o.token IS NOT NULL OR o.seq < e.seq))
                      OR EXISTS (SELECT 1 FROM oncebox_poisoned o
                          WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
                            AND o.in_line IN ('blocks', 'parks') AND o.seq < e.seq)
                  )
              ))
            ORDER BY e.seq
            LIMIT greatest(0, l.at_most - (
                SELECT count(*) FROM waiting w WHERE w.want = l.want AND w.lane = l.lane AND w.handler = l.handler))
            FOR UPDATE SKIP LOCKED
        ) e
    ) r
    WHERE r.first IS NOT NULL
), token AS MATERIALIZED (
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
FROM moment;

-- name: claim_oldest
-- The same as `claim_all`, but leases only the oldest entries of all lanes, up to the limit of each want. The two differ in
-- how they choose `fresh` and `postponed`.
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
-- $14 limit bigint[] (by want)
-- Index: primary key of oncebox_entry, oncebox_scheduled_due, primary key of oncebox_message. For a renamed handler also
-- oncebox_scheduled_order, oncebox_entry_order and oncebox_poisoned_order.
-- Lock order: oncebox_scheduled by (due, seq), then oncebox_entry by number within lane and handler; skips locked
-- rows. Then oncebox_claim.
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
          AND (e.order_key IS NULL OR NOT l.renamed OR NOT EXISTS (
              SELECT 1 FROM unnest($7::int4[], $8::int2[]) AS k (want, handler)
              WHERE k.want = l.want AND k.handler <> e.handler AND (
                  EXISTS (SELECT 1 FROM oncebox_scheduled o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key AND o.seq < e.seq)
                  OR EXISTS (SELECT 1 FROM oncebox_entry o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
                        AND (o.token IS NOT NULL OR o.seq < e.seq))
                  OR EXISTS (SELECT 1 FROM oncebox_poisoned o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
                        AND o.in_line IN ('blocks', 'parks') AND o.seq < e.seq)
              )
          ))
        ORDER BY e.due, e.seq LIMIT l.others FOR UPDATE SKIP LOCKED
    ) r
), untaken AS MATERIALIZED (
    SELECT l.want, l.lane, l.handler, r.*
    FROM look l CROSS JOIN LATERAL (
        SELECT e.ctid AS tid, e.seq, e.due, e.order_key FROM oncebox_entry e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.seq >= l.least AND e.token IS NULL
          AND (e.order_key IS NULL OR NOT l.renamed OR NOT EXISTS (
              SELECT 1 FROM unnest($7::int4[], $8::int2[]) AS k (want, handler)
              WHERE k.want = l.want AND k.handler <> e.handler AND (
                  EXISTS (SELECT 1 FROM oncebox_scheduled o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key AND o.seq < e.seq)
                  OR EXISTS (SELECT 1 FROM oncebox_entry o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
                        AND (o.token IS NOT NULL OR o.seq < e.seq))
                  OR EXISTS (SELECT 1 FROM oncebox_poisoned o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
                        AND o.in_line IN ('blocks', 'parks') AND o.seq < e.seq)
              )
          ))
        ORDER BY e.seq LIMIT l.at_most FOR UPDATE SKIP LOCKED
    ) r
), chosen AS MATERIALIZED (
    SELECT ranked.*
    FROM (
        SELECT d.*, row_number() OVER (PARTITION BY d.want ORDER BY d.due, d.seq) AS place
        FROM (
            SELECT want, lane, handler, due, seq, order_key, tid, NULL::tid AS scheduled_tid FROM untaken
            UNION ALL
            SELECT want, lane, handler, due, seq, NULL, NULL, tid FROM waiting
        ) d
    ) ranked
    WHERE place <= ($14::int8[])[want]
), postponed AS MATERIALIZED (
    SELECT scheduled_tid AS tid FROM chosen WHERE scheduled_tid IS NOT NULL
), fresh AS MATERIALIZED (
    SELECT lane, handler, array_agg(tid) AS tids, min(seq) AS first, max(seq) AS last, array_agg(seq) AS seqs,
           array_agg(due) AS dues, array_agg(order_key) AS order_keys
    FROM chosen WHERE tid IS NOT NULL GROUP BY lane, handler
), token AS MATERIALIZED (
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
FROM moment;

-- name: claim_few
-- Leases everything that is due in some lanes, if it is little and none of it waited before. Otherwise leases nothing,
-- and the caller runs `claim_all`: its many parts take the server longer than the work itself, if there is one message. Not
-- for handlers with several keys. Returns a row per entry with its message, or a row with the number of leased rows: 0,
-- or NULL if the caller must run `claim_all`.
-- Why: a claim of one takes the server 0.13 ms, and 0.43 ms with `claim_all` (ADR 18).
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
    -- Not locked yet: entries that stay for `claim_all` must not be hidden from other claims.
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
LEFT JOIN LATERAL (SELECT * FROM oncebox_message m WHERE m.lane = l.lane AND m.seq = l.seq LIMIT 1) m ON true;

-- name: claim_suspect
-- Leases due entries that crashed a worker: the one that waited longest, and others with the same suspicion. Under a
-- renamed handler an entry is taken as `claim_all` takes it.
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
-- Index: oncebox_scheduled_suspect. For a renamed handler also those of `claim_all`.
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
          AND (e.order_key IS NULL OR NOT l.renamed OR NOT EXISTS (
              SELECT 1 FROM unnest($7::int4[], $8::int2[]) AS k (want, handler)
              WHERE k.want = l.want AND k.handler <> e.handler AND (
                  EXISTS (SELECT 1 FROM oncebox_scheduled o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key AND o.seq < e.seq)
                  OR EXISTS (SELECT 1 FROM oncebox_entry o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
                        AND (o.token IS NOT NULL OR o.seq < e.seq))
                  OR EXISTS (SELECT 1 FROM oncebox_poisoned o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
                        AND o.in_line IN ('blocks', 'parks') AND o.seq < e.seq)
              )
          ))
        ORDER BY e.due, e.seq LIMIT 1 FOR UPDATE SKIP LOCKED
    ) r
    ORDER BY r.due, r.seq LIMIT 1
), due AS MATERIALIZED (
    SELECT r.tid, r.due, r.seq, l.want
    FROM oldest o, look l CROSS JOIN LATERAL (
        SELECT e.ctid AS tid, e.due, e.seq FROM oncebox_scheduled e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.crashes > 0 AND e.crashes = o.crashes AND e.due <= l.now
          AND (e.order_key IS NULL OR NOT l.renamed OR NOT EXISTS (
              SELECT 1 FROM unnest($7::int4[], $8::int2[]) AS k (want, handler)
              WHERE k.want = l.want AND k.handler <> e.handler AND (
                  EXISTS (SELECT 1 FROM oncebox_scheduled o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key AND o.seq < e.seq)
                  OR EXISTS (SELECT 1 FROM oncebox_entry o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
                        AND (o.token IS NOT NULL OR o.seq < e.seq))
                  OR EXISTS (SELECT 1 FROM oncebox_poisoned o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
                        AND o.in_line IN ('blocks', 'parks') AND o.seq < e.seq)
              )
          ))
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
FROM moment m, token t, waited d;

-- name: claim_held
-- Returns the entries that a claim id holds, in the rows of `claim_all`, and true for a run that began as the only one of
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
FROM held h GROUP BY h.handler, h.token, h.claimed_at, h.alone;
