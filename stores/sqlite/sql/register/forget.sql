-- Deletes windows that expired, where a later registration exists.
-- ?1 inbox
-- ?2 now
-- Index: primary key of oncebox_window.
DELETE FROM oncebox_window
WHERE inbox = ?1 AND until < ?2 AND EXISTS (
    SELECT 1 FROM oncebox_window later
    WHERE later.inbox = ?1 AND later.handler = oncebox_window.handler AND later.until > oncebox_window.until
)
