-- Adds what a process remembered and the database lost with an epoch. $1 now or nothing, $2 epoch; by message: $3 source, $4 id; how many
-- milliseconds ago the store acknowledged the first and the last of all: $5, $6; $7 marks.
UPDATE oncebox_timeline t
SET lost_marks = lost_marks + $7, lost_messages = lost_messages + cardinality($4::bytea[]), lost_sources = lost_sources || $3::text[],
    lost_ids = lost_ids || $4::bytea[], lost_from = least(lost_from, m.now - $5), lost_until = greatest(lost_until, m.now - $6)
FROM (SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now) m
WHERE t.epoch = $2
