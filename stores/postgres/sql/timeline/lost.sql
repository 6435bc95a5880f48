-- Adds what a process remembered and the database lost with an epoch.
-- $1 now bigint or NULL (server clock)
-- $2 epoch bigint
-- $3 source text[] (by message)
-- $4 id bytea[]
-- $5 age bigint in ms of the first acknowledgement
-- $6 age bigint in ms of the last one
-- $7 marks bigint: number of lost ones
-- $8 unnamed bigint: number of older commits that the process no longer knows by name
-- $9 age bigint in ms of the first of them, or NULL
-- Index: primary key of oncebox_timeline.
-- Lock order: the row of oncebox_timeline.
UPDATE oncebox_timeline t
SET lost_marks = lost_marks + $7, lost_messages = lost_messages + cardinality($4::bytea[]), lost_sources = lost_sources || $3::text[],
    lost_ids = lost_ids || $4::bytea[], lost_from = least(lost_from, m.now - $5), lost_until = greatest(lost_until, m.now - $6),
    unnamed = unnamed + $8, unnamed_since = least(unnamed_since, m.now - $9)
FROM (SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now) m
WHERE t.epoch = $2
