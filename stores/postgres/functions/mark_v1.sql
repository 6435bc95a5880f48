-- Marks a key for a handler, unless it is marked or another open transaction has it. A transaction that finds the mark takes
-- no lock, so that duplicates do not wait for each other. Marks nothing in the tables of another database. A function,
-- because it runs in sessions of other programs, whose plans may be out of date. Lock order: the advisory lock of the key,
-- without waiting; then the mark.
CREATE FUNCTION oncebox_mark_v1(
    -- Number of the advisory lock of the key.
    p_lock bigint,
    -- The time in ms; NULL for the clock of the server.
    p_now bigint,
    p_lane smallint,
    p_digest bytea,
    p_inbox text,
    p_handler text,
    -- NULL for an id alone.
    p_fingerprint bytea,
    -- Identity of the tables.
    p_incarnation uuid,
    OUT home boolean,
    OUT open boolean,
    OUT marked boolean,
    OUT known bytea
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $body$
DECLARE
    before boolean;
BEGIN
    WITH seen AS MATERIALIZED (
        SELECT (SELECT i.incarnation = p_incarnation FROM oncebox_meta i WHERE i.one) AS home, m.digest IS NOT NULL AS before,
               m.fingerprint
        -- The concatenation keeps the planner from the index of ages.
        FROM (VALUES (1)) asked (one)
        LEFT JOIN oncebox_mark m ON m.lane = p_lane AND m.digest = p_digest AND m.handler || '' = p_handler
    ), gate AS MATERIALIZED (
        SELECT s.*, CASE WHEN s.before OR s.home IS NOT TRUE THEN true ELSE pg_try_advisory_xact_lock(p_lock) END AS open
        FROM seen s
    ), made AS (
        INSERT INTO oncebox_mark (at, lane, digest, inbox, handler, fingerprint)
        SELECT coalesce(p_now, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), p_lane, p_digest, p_inbox, p_handler,
               p_fingerprint
        FROM gate g WHERE g.home AND g.open AND NOT g.before
        ON CONFLICT (lane, digest, handler) DO NOTHING
        RETURNING 1
    )
    SELECT g.home, g.open, g.before, EXISTS (SELECT 1 FROM made), g.fingerprint
    INTO home, open, before, marked, known FROM gate g;
    IF home AND open AND NOT before AND NOT marked THEN
        -- Committed since the statement began: a new statement sees it.
        SELECT m.fingerprint INTO known FROM oncebox_mark m
        WHERE m.lane = p_lane AND m.digest = p_digest AND m.handler || '' = p_handler;
    END IF;
END $body$;
REVOKE ALL ON FUNCTION oncebox_mark_v1 FROM PUBLIC;
