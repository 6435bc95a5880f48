-- Reads the partition of new messages, its start, its approximate number of messages, and the time.
-- $1 now bigint or NULL (server clock)
SELECT m.partition_id, m.started_at, c.last_value - m.counted,
       coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)
FROM oncebox_meta m, oncebox_counter c
