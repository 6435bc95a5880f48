-- Notes how far a sweep has come, and forgets what was noted under other windows. $1 inbox, $2 the window, $3 all windows, $4 up to
-- where, $5 what has to be looked at again.
WITH others AS (
    DELETE FROM oncebox_sweep_cursor WHERE inbox = $1 AND digest <> $3 AND span <> $2
)
INSERT INTO oncebox_sweep_cursor (inbox, span, digest, upto, behind) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (inbox, span) DO UPDATE SET digest = excluded.digest, upto = excluded.upto, behind = excluded.behind
