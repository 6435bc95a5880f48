-- Checks a connection before its first claim: tokens must not go back when the database did. If the timeline changed, or
-- the last token is older than one that the caller has, tokens continue in a new epoch, stored in their upper bits.
-- Returns the timeline and the latest epoch.
CREATE FUNCTION oncebox_check_timeline_v1(
    -- The time in ms; NULL for the clock of the server.
    p_now bigint,
    -- The greatest token that the caller has.
    p_token bigint
) RETURNS TABLE (timeline text, epoch bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    here text := oncebox_here_v1();
    known text;
    given bigint;
    begun bigint;
BEGIN
    SELECT m.timeline INTO known FROM oncebox_meta m WHERE m.one;
    -- A role that only reads never claims, so it needs no token and begins no epoch. A role that takes tokens must begin
    -- epochs, and is refused below if it may not.
    IF NOT has_sequence_privilege('oncebox_token', 'USAGE') THEN
        RETURN QUERY SELECT here, coalesce(max(t.epoch), 0) FROM oncebox_timeline t;
        RETURN;
    END IF;
    SELECT t.last_value - (NOT t.is_called)::int INTO given FROM oncebox_token t;
    IF here NOT IN (known, 'unknown') OR given < p_token THEN
        -- One process at a time: the first begins the epoch, the others find it.
        SELECT m.timeline INTO known FROM oncebox_meta m WHERE m.one FOR UPDATE;
        SELECT t.last_value - (NOT t.is_called)::int INTO given FROM oncebox_token t;
        IF here = 'unknown' THEN here := known; END IF;
        IF here <> known OR given < p_token THEN
            -- At least the timeline's own number: a replica that missed an epoch must not begin the same one.
            begun := greatest((greatest(given, p_token) >> 40) + 1, nullif(split_part(here, '/', 2), '')::bigint);
            PERFORM setval('oncebox_token', begun << 40);
            UPDATE oncebox_meta m SET timeline = here WHERE m.one;
            INSERT INTO oncebox_timeline (epoch, noticed_at, former, timeline, switched_at, lost_claims)
            VALUES (begun, coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000)::bigint), known, here,
                    pg_last_wal_replay_lsn()::text, CASE WHEN p_token >> 40 = given >> 40 THEN greatest(p_token - given, 0) ELSE 0 END);
        END IF;
    END IF;
    RETURN QUERY SELECT here, coalesce(max(t.epoch), 0) FROM oncebox_timeline t;
END $body$;
