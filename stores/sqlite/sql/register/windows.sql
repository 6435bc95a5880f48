-- Reads all registered windows of an inbox.
-- ?1 inbox
-- Index: primary key of oncebox_window.
SELECT handler, span, until FROM oncebox_window WHERE inbox = ?1
