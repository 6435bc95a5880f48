-- name: backfill_page
-- Reads a page of messages of all inboxes in the order of acceptance, with true for erased content.
-- ?1 seq to continue after
-- ?2 limit
-- ?3 fingerprint of erased content
-- Index: primary key of oncebox_message.
SELECT seq, inbox, type, handlers, time, fingerprint = ?3 FROM oncebox_message WHERE seq > ?1 ORDER BY seq LIMIT ?2;
