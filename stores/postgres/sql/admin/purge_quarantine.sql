-- Deletes quarantined messages that are older than an age.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 age bigint in ms
-- $4 limit bigint
-- Index: primary key of oncebox_quarantine.
-- Lock order: oncebox_quarantine by id; skips locked rows.
DELETE FROM oncebox_quarantine WHERE id IN (
    SELECT id FROM oncebox_quarantine
    WHERE inbox = $2 AND received_at <= coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) - $3
    ORDER BY id LIMIT $4 FOR UPDATE SKIP LOCKED
)
