-- Where new messages go, since when, how many there are about, and the time. $1 now or nothing.
SELECT m.partition_id, m.started_at, c.last_value - m.counted,
       coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)
FROM oncebox_meta m, oncebox_counter c
