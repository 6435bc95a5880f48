-- Writes settlements under their fence. Returns one row: the places of the claims that held, and the least number that
-- became work, by lane and handler. An order queue has at most one running entry: after its settlement none runs. Lock
-- order: the advisory locks in the order of `p_locks`, then the entries.
CREATE FUNCTION oncebox_settle_v1(
    -- The time in ms; NULL for the clock of the server.
    p_now bigint,
    p_places int[],
    p_lanes smallint[],
    p_handlers smallint[],
    p_seqs bigint[],
    p_tokens bigint[],
    p_claim_ids uuid[],
    -- Statuses. With those up to `p_in_lines` NULL if all are completed.
    p_next text[],
    -- In ms.
    p_delays bigint[],
    p_attempts int[],
    p_crashes int[],
    p_reasons text[],
    p_errors text[],
    p_in_lines text[],
    -- True if the transaction that the handler was given must run it.
    p_in_transaction boolean,
    -- Class and numbers of the advisory locks.
    p_lock_class int,
    p_locks int[],
    -- Kinds of failed attempts.
    p_events text[]
) RETURNS TABLE (places int[], lanes smallint[], handlers smallint[], seqs bigint[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET enable_nestloop = on AS $body$
DECLARE
    line_lanes smallint[];
    line_handlers smallint[];
    line_keys bytea[];
BEGIN
    IF p_in_transaction AND current_setting('oncebox.handler', true) IS DISTINCT FROM 'on' THEN RETURN; END IF;
    -- A separate statement: one that waits for a lock and then reads would not see what was committed while it waited.
    PERFORM pg_advisory_xact_lock(p_lock_class, l.number) FROM unnest(p_locks) AS l (number);
    IF p_next IS NULL THEN
        WITH moment AS MATERIALIZED (
            SELECT coalesce(p_now, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
        ), ended AS (
            DELETE FROM oncebox_entry r
            USING unnest(p_places, p_lanes, p_handlers, p_seqs, p_tokens, p_claim_ids) AS s (place, lane, handler, seq, token, claim_id)
            -- An array of one: the server can only look rows up, even if it believes that the table is empty.
            WHERE r.lane = ANY (ARRAY[s.lane]) AND r.handler = s.handler AND r.seq = s.seq
              AND r.token = s.token AND r.claim_id = s.claim_id
            RETURNING s.place, r.seq, r.lane, r.handler, r.token, r.attempts, r.crashes, r.generation, r.order_key, r.error
        ), finished AS (
            INSERT INTO oncebox_outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
            SELECT e.seq, e.token, (SELECT m.now FROM moment m), coalesce(e.attempts, 0), coalesce(e.crashes, 0),
                   coalesce(e.generation, 0), e.lane, e.handler, 'completed', e.error
            FROM ended e
        )
        SELECT array_agg(e.place), array_agg(e.lane) FILTER (WHERE e.order_key IS NOT NULL),
               array_agg(e.handler) FILTER (WHERE e.order_key IS NOT NULL),
               array_agg(e.order_key) FILTER (WHERE e.order_key IS NOT NULL)
        INTO places, line_lanes, line_handlers, line_keys FROM ended e;
    ELSE
        WITH moment AS MATERIALIZED (
            SELECT coalesce(p_now, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
        ), settlement AS MATERIALIZED (
            SELECT * FROM unnest(p_places, p_lanes, p_handlers, p_seqs, p_tokens, p_claim_ids, p_next, p_delays, p_attempts, p_crashes, p_reasons, p_errors, p_in_lines, p_events)
                 AS s (place, lane, handler, seq, token, claim_id, next, delay, attempts, crashes, reason, error, in_line, event)
        ), ended AS (
            DELETE FROM oncebox_entry r USING settlement s
            -- An array of one: the server can only look rows up, even if it believes that the table is empty.
            WHERE r.lane = ANY (ARRAY[s.lane]) AND r.handler = s.handler AND r.seq = s.seq
              AND r.token = s.token AND r.claim_id = s.claim_id
            RETURNING s.place, r.seq, r.lane, r.handler, r.token, coalesce(r.generation, 0) AS generation, r.order_key, s.next,
                      s.delay, s.attempts, s.crashes, s.reason, s.in_line, coalesce(s.error, r.error) AS error, r.claim_id,
                      s.event, s.error AS said
        ), finished AS (
            INSERT INTO oncebox_outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
            SELECT e.seq, e.token, m.now, e.attempts, e.crashes, e.generation, e.lane, e.handler, e.next, e.error
            FROM ended e, moment m WHERE e.next IN ('completed', 'discarded')
        ), failed AS (
            INSERT INTO oncebox_attempt (seq, token, at, attempts, crashes, generation, lane, handler, claim_id, event, error)
            SELECT e.seq, e.token, m.now, e.attempts, e.crashes, e.generation, e.lane, e.handler, e.claim_id, e.event, e.said
            FROM ended e, moment m WHERE e.event IS NOT NULL
        ), again AS (
            INSERT INTO oncebox_scheduled (seq, due, not_before, token, attempts, crashes, generation, lane, handler, order_key, error)
            SELECT e.seq, CASE WHEN e.order_key IS NULL THEN least(m.now::numeric + e.delay, 9223372036854775807)::bigint
                               ELSE 9223372036854775807 END,
                   least(m.now::numeric + e.delay, 9223372036854775807)::bigint, e.token, e.attempts, e.crashes, e.generation,
                   e.lane, e.handler, e.order_key, e.error
            FROM ended e, moment m WHERE e.next = 'pending'
        ), spoiled AS (
            INSERT INTO oncebox_poisoned (seq, token, at, attempts, crashes, generation, lane, handler, reason, order_key, in_line, error)
            SELECT e.seq, e.token, m.now, e.attempts, e.crashes, e.generation, e.lane, e.handler, e.reason, e.order_key,
                   CASE WHEN e.order_key IS NOT NULL THEN coalesce(e.in_line, 'blocks') END, e.error
            FROM ended e, moment m WHERE e.next = 'poisoned'
        )
        SELECT array_agg(e.place), array_agg(e.lane) FILTER (WHERE e.order_key IS NOT NULL),
               array_agg(e.handler) FILTER (WHERE e.order_key IS NOT NULL),
               array_agg(e.order_key) FILTER (WHERE e.order_key IS NOT NULL)
        INTO places, line_lanes, line_handlers, line_keys FROM ended e;
    END IF;
    IF line_lanes IS NOT NULL THEN
        SELECT array_agg(r.lane), array_agg(r.handler), array_agg(r.seq) INTO lanes, handlers, seqs
        FROM (
            -- Each order queue once.
            SELECT array_agg(l.lane), array_agg(l.handler), array_agg(l.order_key)
            FROM (SELECT DISTINCT * FROM unnest(line_lanes, line_handlers, line_keys) AS u (lane, handler, order_key)) l
        ) d (line_lanes, line_handlers, line_keys)
        CROSS JOIN LATERAL oncebox_release_v1(p_now, d.line_lanes, d.line_handlers, d.line_keys, true) AS r;
    END IF;
    RETURN NEXT;
END $body$;
REVOKE ALL ON FUNCTION oncebox_settle_v1 FROM PUBLIC;
