-- Stores new messages and describes known ones. Returns a row per message: place in the batch, number (NULL if it raced or
-- is stale), true if new, true if stale, and the known key's fingerprint, handlers and age. Lock order: the advisory locks
-- in the order of `p_locks`, then the proofs by (lane, digest).
CREATE FUNCTION oncebox_accept_v1(
    -- The time in ms; NULL for the clock of the server.
    p_now bigint,
    p_inbox smallint,
    p_places int[],
    p_lanes smallint[],
    -- Lanes of the messages; `p_lanes` are those of the keys.
    p_homes smallint[],
    p_digests bytea[],
    p_fingerprints bytea[],
    -- Handlers as the proof stores them.
    p_known_handlers bytea[],
    p_times bigint[],
    p_sources text[],
    p_ids bytea[],
    p_types text[],
    p_ordering_keys bytea[],
    p_headers bytea[],
    p_payloads bytea[],
    p_order_keys bytea[],
    -- In ms.
    p_delays bigint[],
    -- By entry: the place of its message, and its handler.
    p_entry_places int[],
    p_entry_handlers smallint[],
    p_tenants text[],
    -- Class and numbers of the advisory locks.
    p_lock_class int,
    p_locks int[],
    -- By order queue.
    p_queue_lanes smallint[],
    p_queue_handlers smallint[],
    p_queue_keys bytea[],
    -- By message: the handlers whose watermark counts.
    p_groups int[],
    -- By handler of such a group, former ones included, or 0 for none.
    p_member_groups int[],
    p_member_handlers smallint[]
) RETURNS TABLE (place int, seq bigint, fresh boolean, stale boolean, fingerprint bytea, handlers bytea, age bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_nestloop = off SET work_mem = '16MB'
AS $body$
BEGIN
    -- A separate statement: one that waits for a lock and then reads would not see what was committed while it waited.
    PERFORM pg_advisory_xact_lock(p_lock_class, l.number) FROM unnest(p_locks) AS l (number);
    RETURN QUERY WITH moment AS MATERIALIZED (
        SELECT coalesce(p_now, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, t.partition_id, t.counted
        FROM oncebox_meta t WHERE t.one
    ), forgotten AS MATERIALIZED (
        SELECT a.asked, max(coalesce(h.watermark, i.watermark)) AS watermark
        FROM unnest(p_member_groups, p_member_handlers) AS a (asked, handler) LEFT JOIN oncebox_handler h ON h.id = a.handler
        CROSS JOIN oncebox_inbox i WHERE i.id = p_inbox
        GROUP BY a.asked
    ), offered AS MATERIALIZED (
        SELECT o.*, (m.partition_id << 36) | ((nextval('oncebox_counter') - m.counted) << 6) | o.home AS seq, m.now,
               -- There are few different groups. A join could change the order of the numbers.
               coalesce(o.time <= (SELECT a.watermark FROM forgotten a WHERE a.asked = o.asked), false) AS stale,
               known.seq IS NOT NULL AS known
        FROM moment m CROSS JOIN unnest(p_places, p_lanes, p_homes, p_digests, p_fingerprints, p_known_handlers, p_times, p_sources, p_ids, p_types, p_ordering_keys, p_headers, p_payloads, p_order_keys, p_delays, p_tenants, p_groups)
             AS o (place, lane, home, digest, fingerprint, handlers, time, source, id, type, ordering_key, headers, payload,
                   order_key, delay, tenant, asked)
        LEFT JOIN LATERAL (
            SELECT p.seq FROM oncebox_proof p WHERE p.lane = o.lane AND p.digest = o.digest LIMIT 1
        ) known ON true
    ), fresh AS (
        INSERT INTO oncebox_proof AS p (seq, received_at, lane, inbox, digest, fingerprint, handlers, tenant)
        SELECT o.seq, o.now, o.lane, p_inbox, o.digest, o.fingerprint, o.handlers, o.tenant FROM offered o
        -- A key that this statement saw is not new, even if a sweep deletes it meanwhile.
        WHERE NOT o.stale AND NOT o.known
        -- Prevents a deadlock of two batches that share keys.
        ORDER BY o.lane, o.digest
        ON CONFLICT (lane, digest) DO NOTHING
        RETURNING p.seq
    ), first AS MATERIALIZED (
        SELECT o.* FROM offered o JOIN fresh f ON f.seq = o.seq
    ), stored AS (
        INSERT INTO oncebox_message (seq, received_at, time, lane, inbox, digest, source, id, type, ordering_key, headers, payload,
                              tenant)
        SELECT f.seq, f.now, f.time, f.home, p_inbox, f.digest, f.source, f.id, f.type, f.ordering_key, f.headers, f.payload, f.tenant
        FROM first f
    ), entry AS MATERIALIZED (
        SELECT f.seq, f.now, f.home, e.handler, f.order_key, f.delay
        FROM first f JOIN unnest(p_entry_places, p_entry_handlers) AS e (place, handler) ON e.place = f.place
    ), head AS MATERIALIZED (
        -- The first entry of each empty order queue. The others wait until the settlement of the one before releases them.
        SELECT e.seq, e.handler
        FROM (
            SELECT DISTINCT ON (o.home, o.handler, o.order_key) o.seq, o.home, o.handler, o.order_key
            FROM entry o WHERE o.order_key IS NOT NULL ORDER BY o.home, o.handler, o.order_key, o.seq
        ) e
        WHERE (
            SELECT r.order_key FROM oncebox_entry r
            WHERE r.lane = e.home AND r.handler = e.handler AND r.order_key BETWEEN e.order_key AND e.order_key
            ORDER BY r.order_key LIMIT 1
        ) IS NULL AND (
            SELECT p.order_key FROM oncebox_scheduled p
            WHERE p.lane = e.home AND p.handler = e.handler AND p.order_key BETWEEN e.order_key AND e.order_key
            ORDER BY p.order_key LIMIT 1
        ) IS NULL AND (
            SELECT b.seq FROM oncebox_poisoned b
            WHERE b.lane = e.home AND b.handler = e.handler AND b.order_key = e.order_key AND b.in_line IN ('blocks', 'parks')
            LIMIT 1
        ) IS NULL
    ), arranged AS MATERIALIZED (
        SELECT e.*, h.seq IS NOT NULL OR e.order_key IS NULL AS free
        FROM entry e LEFT JOIN head h ON h.seq = e.seq AND h.handler = e.handler
    ), due AS (
        INSERT INTO oncebox_entry (seq, due, lane, handler, order_key)
        SELECT e.seq, e.now, e.home, e.handler, e.order_key FROM arranged e WHERE e.free AND e.delay = 0
    ), scheduled AS (
        INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, order_key)
        SELECT e.seq, CASE WHEN e.free THEN e.now + e.delay ELSE 9223372036854775807 END, e.now + e.delay, e.home, e.handler,
               e.order_key
        FROM arranged e WHERE NOT e.free OR e.delay > 0
    )
    SELECT f.place, f.seq, true, false, NULL::bytea, NULL::bytea, NULL::bigint FROM first f
    UNION ALL
    SELECT o.place, known.seq, false, o.stale, known.fingerprint, known.handlers, o.now - known.received_at
    FROM offered o LEFT JOIN LATERAL (
        -- LIMIT keeps the planner from scanning the whole table.
        SELECT p.seq, p.received_at, p.fingerprint, p.handlers FROM oncebox_proof p WHERE p.lane = o.lane AND p.digest = o.digest LIMIT 1
    ) known ON true
    WHERE NOT EXISTS (SELECT 1 FROM fresh f WHERE f.seq = o.seq);
    IF cardinality(p_queue_lanes) > 0 THEN
        PERFORM oncebox_park_v1(p_now, p_queue_lanes, p_queue_handlers, p_queue_keys);
    END IF;
END $body$;
REVOKE ALL ON FUNCTION oncebox_accept_v1 FROM PUBLIC;
