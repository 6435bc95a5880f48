-- Marks a key for a handler. First, unless it is marked; busy if another transaction that has not ended has it. Who finds the mark
-- takes no lock: duplicates are not in each other's way. $1 lock, $2 now or nothing, $3 lane, $4 digest, $5 inbox, $6 handler.
WITH seen AS MATERIALIZED (
    SELECT EXISTS (SELECT 1 FROM @mark WHERE lane = $3 AND digest = $4 AND handler = $6) AS before
), gate AS MATERIALIZED (
    SELECT before, CASE WHEN before THEN true ELSE pg_try_advisory_xact_lock($1) END AS open FROM seen
), marked AS (
    INSERT INTO @mark (at, lane, digest, inbox, handler)
    SELECT coalesce($2, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), $3, $4, $5, $6 FROM gate
    WHERE open AND NOT before
    ON CONFLICT (lane, digest, handler) DO NOTHING
    RETURNING 1
)
SELECT open, EXISTS (SELECT 1 FROM marked) FROM gate
