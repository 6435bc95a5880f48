-- Locks the rows of claims that hold, until the transaction ends. Returns their places. A function, because the server
-- chooses the plans on connections of handlers. Lock order: that of the parameters, which all callers share.
CREATE FUNCTION oncebox_hold_v1(
    p_places int[],
    p_lanes smallint[],
    p_handlers smallint[],
    p_seqs bigint[],
    p_tokens bigint[],
    p_claim_ids uuid[]
) RETURNS SETOF int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET enable_nestloop = on AS $body$
BEGIN
    RETURN QUERY WITH claim AS MATERIALIZED (
        SELECT * FROM unnest(p_places, p_lanes, p_handlers, p_seqs, p_tokens, p_claim_ids) AS c (place, lane, handler, seq, token, claim_id)
    )
    SELECT s.place
    FROM claim s JOIN oncebox_entry r
      -- An array of one: the server can only look rows up, even if it believes that the table is empty.
      ON r.lane = ANY (ARRAY[s.lane]) AND r.handler = s.handler AND r.seq = s.seq
     AND r.token = s.token AND r.claim_id = s.claim_id
    FOR UPDATE OF r;
END $body$;
REVOKE ALL ON FUNCTION oncebox_hold_v1 FROM PUBLIC;
