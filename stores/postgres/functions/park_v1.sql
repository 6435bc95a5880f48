-- Parks entries that wait behind an entry that parks. Lock order: the caller took the locks of the order queues in an
-- earlier statement.
CREATE FUNCTION oncebox_park_v1(
    -- The time in ms; NULL for the clock of the server.
    p_now bigint,
    p_lanes smallint[],
    p_handlers smallint[],
    p_order_keys bytea[]
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET enable_nestloop = on AS $body$
BEGIN
    -- Each statement must see what was committed while it waited for the lock.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'ordered messages need transactions at READ COMMITTED, and this one is at %',
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'feature_not_supported';
    END IF;
    IF EXISTS (SELECT 1 FROM oncebox_poisoned b WHERE b.lane = ANY (p_lanes) AND b.in_line IN ('blocks', 'parks')) AND EXISTS (
        SELECT 1 FROM unnest(p_lanes, p_handlers, p_order_keys) AS l (lane, handler, order_key) WHERE (
            SELECT b.seq FROM oncebox_poisoned b
            WHERE b.lane = l.lane AND b.handler = l.handler AND b.order_key = l.order_key AND b.in_line = 'parks'
            LIMIT 1
        ) IS NOT NULL
    ) THEN
        WITH moment AS MATERIALIZED (
            SELECT coalesce(p_now, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
        ), head AS MATERIALIZED (
            SELECT l.*, (
                SELECT min(b.seq) FROM oncebox_poisoned b
                WHERE b.lane = l.lane AND b.handler = l.handler AND b.order_key = l.order_key AND b.in_line = 'parks'
            ) AS seq
            FROM unnest(p_lanes, p_handlers, p_order_keys) AS l (lane, handler, order_key)
        ), parked AS (
            -- Found first, so that the server can only look rows up, even if it believes that the table is empty.
            DELETE FROM oncebox_scheduled p WHERE p.ctid = ANY (ARRAY(
                SELECT f.tid FROM head h CROSS JOIN LATERAL (
                    SELECT w.ctid AS tid FROM oncebox_scheduled w
                    WHERE w.lane = h.lane AND w.handler = h.handler AND w.order_key BETWEEN h.order_key AND h.order_key
                      AND w.seq > h.seq
                    ORDER BY w.order_key, w.seq OFFSET 0
                ) f
            ))
            RETURNING p.seq, p.token, p.attempts, p.crashes, p.generation, p.lane, p.handler, p.order_key, p.not_before, p.error
        )
        INSERT INTO oncebox_poisoned (seq, token, at, attempts, crashes, generation, lane, handler, reason, order_key, in_line,
                               not_before, error)
        SELECT p.seq, p.token, m.now, p.attempts, p.crashes, p.generation, p.lane, p.handler, 'parked', p.order_key, 'parked',
               p.not_before, p.error
        FROM parked p, moment m;
    END IF;
END $body$;
REVOKE ALL ON FUNCTION oncebox_park_v1 FROM PUBLIC;
