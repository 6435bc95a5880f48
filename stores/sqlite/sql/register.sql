-- name: register
-- Registers the window of a handler.
-- ?1 inbox
-- ?2 handler key, empty for the inbox
-- ?3 span in ms
-- ?4 until
-- Index: primary key of oncebox_window.
INSERT INTO oncebox_window (inbox, handler, span, until) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (inbox, handler, span) DO UPDATE SET until = max(until, excluded.until);

-- name: register_forget
-- Deletes windows that expired, where a later registration exists.
-- ?1 inbox
-- ?2 now
-- Index: primary key of oncebox_window.
DELETE FROM oncebox_window
WHERE inbox = ?1 AND until < ?2 AND EXISTS (
    SELECT 1 FROM oncebox_window later
    WHERE later.inbox = ?1 AND later.handler = oncebox_window.handler AND later.until > oncebox_window.until
);

-- name: register_set_tenants
-- Stores the tenants setting of an inbox.
-- ?1 inbox
-- ?2 setting
-- Index: primary key of oncebox_inbox.
UPDATE oncebox_inbox SET tenants = ?2 WHERE id = ?1;

-- name: register_tenants
-- Reads the tenants setting of an inbox, as a process registered it.
-- ?1 inbox
-- Index: primary key of oncebox_inbox.
SELECT tenants FROM oncebox_inbox WHERE id = ?1;

-- name: register_windows
-- Reads all registered windows of an inbox.
-- ?1 inbox
-- Index: primary key of oncebox_window.
SELECT handler, span, until FROM oncebox_window WHERE inbox = ?1;
