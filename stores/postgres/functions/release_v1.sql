-- Releases the first entry of each order queue, unless an entry of the queue is released or runs, or an earlier one blocks
-- it. Then parks entries behind one that parks. Returns the least number that became work, by lane and handler. Lock
-- order: the caller took the locks of the queues in an earlier statement. Each queue
-- comes once.
CREATE FUNCTION oncebox_release_v1(
    -- The time in ms; NULL for the clock of the server.
    p_now bigint,
    p_lanes smallint[],
    p_handlers smallint[],
    p_order_keys bytea[],
    -- True if the caller knows that no entry of the queues is released or runs.
    p_idle boolean
)
RETURNS TABLE (lane smallint, handler smallint, seq bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET enable_nestloop = on AS $body$
BEGIN
    RETURN QUERY WITH moment AS MATERIALIZED (
        SELECT coalesce(p_now, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
    ), free AS MATERIALIZED (
        SELECT head.*, head.token = 0 AND head.attempts = 0 AND head.crashes = 0 AND head.generation = 0
               AND head.error IS NULL AND head.not_before <= m.now AS untouched
        FROM moment m, unnest(p_lanes, p_handlers, p_order_keys) AS l (lane, handler, order_key) CROSS JOIN LATERAL (
            -- A range of one value: only the index of order keys has this order. So a plan that was made while the table
            -- was empty does not scan the primary key instead.
            SELECT p.ctid AS tid, p.seq, p.lane, p.handler, p.order_key, p.due, p.not_before, p.token, p.attempts, p.crashes,
                   p.generation, p.error
            FROM oncebox_scheduled p
            WHERE p.lane = l.lane AND p.handler = l.handler AND p.order_key BETWEEN l.order_key AND l.order_key
            ORDER BY p.order_key, p.seq LIMIT 1
        ) head
        WHERE head.due = 9223372036854775807
          AND (p_idle OR (
            SELECT r.order_key FROM oncebox_entry r
            WHERE r.lane = l.lane AND r.handler = l.handler AND r.order_key BETWEEN l.order_key AND l.order_key
            ORDER BY r.order_key LIMIT 1
        ) IS NULL) AND (
            NOT EXISTS (SELECT 1 FROM oncebox_poisoned b WHERE b.lane = ANY (p_lanes) AND b.in_line IN ('blocks', 'parks'))
            OR (
                SELECT b.seq FROM oncebox_poisoned b
                WHERE b.lane = l.lane AND b.handler = l.handler AND b.order_key = l.order_key
                  AND b.in_line IN ('blocks', 'parks') AND b.seq < head.seq
                LIMIT 1
            ) IS NULL)
    ), gone AS (
        DELETE FROM oncebox_scheduled p WHERE p.ctid = ANY (ARRAY(SELECT f.tid FROM free f WHERE f.untouched))
    ), work AS (
        INSERT INTO oncebox_entry AS w (seq, due, lane, handler, order_key)
        SELECT f.seq, f.not_before, f.lane, f.handler, f.order_key FROM free f WHERE f.untouched
        RETURNING w.lane, w.handler, w.seq
    ), dated AS (
        -- An entry that waited before, or is not due yet, stays and gets a due time.
        UPDATE oncebox_scheduled p SET due = greatest(p.not_before, m.now) FROM moment m
        WHERE p.ctid = ANY (ARRAY(SELECT f.tid FROM free f WHERE NOT f.untouched))
    )
    SELECT w.lane, w.handler, min(w.seq) FROM work w GROUP BY w.lane, w.handler;
    PERFORM oncebox_park_v1(p_now, p_lanes, p_handlers, p_order_keys);
END $body$;
REVOKE ALL ON FUNCTION oncebox_release_v1 FROM PUBLIC;
