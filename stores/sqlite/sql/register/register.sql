-- Registers the window of a handler.
-- ?1 inbox
-- ?2 handler key, empty for the inbox
-- ?3 span in ms
-- ?4 until
-- Index: primary key of oncebox_window.
INSERT INTO oncebox_window (inbox, handler, span, until) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (inbox, handler, span) DO UPDATE SET until = max(until, excluded.until)
