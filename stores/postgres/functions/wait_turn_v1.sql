-- Makes released entries wait again if an older entry of their order queue has arrived since. Waits for a claim that is
-- taking one: then it runs, and stays as it is. Lock order: the caller took the locks of the queues in an earlier
-- statement.
CREATE FUNCTION oncebox_wait_turn_v1(
    p_lanes smallint[],
    p_handlers smallint[],
    p_order_keys bytea[]
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET enable_nestloop = on AS $body$
BEGIN
    WITH line AS MATERIALIZED (
        SELECT * FROM unnest(p_lanes, p_handlers, p_order_keys) AS l (lane, handler, order_key)
    ), back AS (
        -- Found first, so that the server can only look rows up, even if it believes that the table is empty.
        DELETE FROM oncebox_entry p
        WHERE p.ctid = ANY (ARRAY(
            SELECT f.tid FROM line l CROSS JOIN LATERAL (
                SELECT w.ctid AS tid FROM oncebox_entry w
                WHERE w.lane = l.lane AND w.handler = l.handler AND w.order_key BETWEEN l.order_key AND l.order_key
                  AND w.token IS NULL AND (
                    SELECT older.seq FROM oncebox_scheduled older
                    WHERE older.lane = w.lane AND older.handler = w.handler AND older.order_key BETWEEN w.order_key AND w.order_key
                      AND older.seq < w.seq
                    ORDER BY older.order_key, older.seq LIMIT 1
                ) IS NOT NULL
                ORDER BY w.order_key OFFSET 0
            ) f
        )) AND p.token IS NULL
        RETURNING p.seq, p.due, p.lane, p.handler, p.order_key
    ), waits AS (
        INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, order_key)
        SELECT b.seq, 9223372036854775807, b.due, b.lane, b.handler, b.order_key FROM back b
    )
    UPDATE oncebox_scheduled p SET due = 9223372036854775807, not_before = p.due
    WHERE p.ctid = ANY (ARRAY(
        SELECT f.tid FROM line l CROSS JOIN LATERAL (
            SELECT w.ctid AS tid FROM oncebox_scheduled w
            WHERE w.lane = l.lane AND w.handler = l.handler AND w.order_key BETWEEN l.order_key AND l.order_key
              AND w.due <> 9223372036854775807 AND (
                SELECT older.seq FROM oncebox_scheduled older
                WHERE older.lane = w.lane AND older.handler = w.handler AND older.order_key BETWEEN w.order_key AND w.order_key
                  AND older.seq < w.seq
                ORDER BY older.order_key, older.seq LIMIT 1
            ) IS NOT NULL
            ORDER BY w.order_key OFFSET 0
        ) f
    )) AND p.due <> 9223372036854775807;
END $body$;
REVOKE ALL ON FUNCTION oncebox_wait_turn_v1 FROM PUBLIC;
