-- Stores the cursor of a sweep, and deletes cursors of former windows.
-- $1 inbox smallint
-- $2 span bigint in ms
-- $3 digest bigint: of all windows
-- $4 upto bigint: last number
-- $5 behind bigint[]: numbers that need another look
-- Index: primary key of oncebox_sweep_cursor.
-- Lock order: the rows of oncebox_sweep_cursor.
WITH others AS (
    DELETE FROM oncebox_sweep_cursor WHERE inbox = $1 AND digest <> $3 AND span <> $2
)
INSERT INTO oncebox_sweep_cursor (inbox, span, digest, upto, behind) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (inbox, span) DO UPDATE SET digest = excluded.digest, upto = excluded.upto, behind = excluded.behind
