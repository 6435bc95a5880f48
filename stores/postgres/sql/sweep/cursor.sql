-- Reads the sweep cursor of a window.
-- $1 inbox smallint
-- $2 span bigint in ms
-- $3 digest bigint: of all windows
-- Index: primary key of oncebox_sweep_cursor.
SELECT upto, behind FROM oncebox_sweep_cursor WHERE inbox = $1 AND span = $2 AND digest = $3
