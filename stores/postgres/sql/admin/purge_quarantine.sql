DELETE FROM oncebox_quarantine WHERE id IN (
    SELECT id FROM oncebox_quarantine
    WHERE inbox = $2 AND received_at <= coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) - $3
    ORDER BY id LIMIT $4 FOR UPDATE SKIP LOCKED
)
