-- Stores messages that all go to the same handlers, at once and without order, if all of them are new. Returns their places
-- and numbers, or stores nothing and returns no row if a key is known. A lookup of the keys first would take a good part of
-- the time, mostly in vain. The server does not log an error that is caught here. NULL stands for a time or tenant that no
-- message has, and for a source, type or headers that all share. Lock order: the proofs by (lane, digest).
CREATE FUNCTION oncebox_accept_new_v1(
    -- The time in ms; NULL for the clock of the server.
    p_now bigint,
    p_inbox smallint,
    -- Handlers of all messages, as the proof stores them.
    p_proof_handlers bytea,
    p_handlers smallint[],
    p_places int[],
    p_lanes smallint[],
    p_digests bytea[],
    p_fingerprints bytea[],
    p_times bigint[],
    p_sources text[],
    p_ids bytea[],
    p_types text[],
    p_headers bytea[],
    p_payloads bytea[],
    p_tenants text[],
    -- Of all messages, instead of an array; otherwise NULL.
    p_shared_source text,
    p_shared_type text,
    p_shared_headers bytea
) RETURNS TABLE (places int[], seqs bigint[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_nestloop = off SET work_mem = '16MB'
AS $body$
BEGIN
    WITH moment AS MATERIALIZED (
        SELECT coalesce(p_now, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, partition_id, counted
        FROM oncebox_meta WHERE one
    ), offered AS MATERIALIZED (
        SELECT o.*, m.now, (m.partition_id << 36) | ((nextval('oncebox_counter') - m.counted) << 6) | o.lane AS seq
        FROM moment m CROSS JOIN unnest(p_places, p_lanes, p_digests, p_fingerprints, p_times, p_sources, p_ids, p_types, p_headers, p_payloads, p_tenants)
             AS o (place, lane, digest, fingerprint, time, source, id, type, headers, payload, tenant)
    ), proved AS (
        INSERT INTO oncebox_proof (seq, received_at, lane, inbox, digest, fingerprint, handlers, tenant)
        SELECT seq, now, lane, p_inbox, digest, fingerprint, p_proof_handlers, tenant FROM offered
        -- Prevents a deadlock of two batches that share keys.
        ORDER BY lane, digest
    ), stored AS (
        INSERT INTO oncebox_message (seq, received_at, time, lane, inbox, digest, source, id, type, headers, payload, tenant)
        SELECT seq, now, time, lane, p_inbox, digest, coalesce(source, p_shared_source), id, coalesce(type, p_shared_type), coalesce(headers, p_shared_headers), payload,
               tenant
        FROM offered
    ), due AS (
        INSERT INTO oncebox_entry (seq, due, lane, handler)
        SELECT seq, now, lane, unnest(p_handlers) FROM offered
    )
    SELECT array_agg(place), array_agg(seq) INTO places, seqs FROM offered;
    RETURN NEXT;
EXCEPTION WHEN unique_violation THEN
    NULL;
END $body$;
REVOKE ALL ON FUNCTION oncebox_accept_new_v1 FROM PUBLIC;
