-- Raises the watermark of a handler.
-- ?1 handler
-- ?2 watermark
-- Index: primary key of oncebox_handler.
UPDATE oncebox_handler SET watermark = max(watermark, ?2) WHERE id = ?1
