-- No more than are shown, MessageView::ASIDES: each has its payload with it.
SELECT reason, received_at, time, source, message_id, type, ordering_key, headers, payload, tenant
FROM @aside WHERE digest = $1 AND inbox = $2 ORDER BY id LIMIT 100
