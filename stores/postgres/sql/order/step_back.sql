-- Parks whoever was let go although an older one of its line has come since. Waits for a claim that is taking it: then it
-- runs, and is left alone. Needs the lock of the lines. By line: $1 lane, $2 handler, $3 order key.
WITH line AS MATERIALIZED (
    SELECT * FROM unnest($1::int2[], $2::int2[], $3::bytea[]) AS l (lane, handler, order_key)
), back AS (
    DELETE FROM @entry p USING line l
    WHERE p.lane = l.lane AND p.handler = l.handler AND p.order_key = l.order_key AND p.token IS NULL
      AND EXISTS (
        SELECT 1 FROM @later older
        WHERE older.lane = p.lane AND older.handler = p.handler AND older.order_key = p.order_key AND older.seq < p.seq
    )
    RETURNING p.seq, p.due, p.lane, p.handler, p.order_key
), waits AS (
    INSERT INTO @later (seq, due, not_before, lane, handler, order_key)
    SELECT seq, 9223372036854775807, due, lane, handler, order_key FROM back
)
UPDATE @later p SET due = 9223372036854775807, not_before = p.due
FROM line l
WHERE p.lane = l.lane AND p.handler = l.handler AND p.order_key = l.order_key AND p.due <> 9223372036854775807
  AND EXISTS (
    SELECT 1 FROM @later older
    WHERE older.lane = p.lane AND older.handler = p.handler AND older.order_key = p.order_key AND older.seq < p.seq
  )
