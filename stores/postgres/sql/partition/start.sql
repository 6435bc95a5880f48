-- Notes the time of the first sweep.
-- $1 now bigint
-- Lock order: the row of oncebox_meta.
UPDATE oncebox_meta SET started_at = $1 WHERE started_at IS NULL
