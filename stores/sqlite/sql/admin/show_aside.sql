-- No more than are shown, MessageView::ASIDES: each has its payload with it.
SELECT reason, received_at, time, tenant, source, message_id, type, ordering_key, headers, payload
FROM oncebox_aside WHERE digest = ?1 AND inbox = ?2 ORDER BY id LIMIT 100
