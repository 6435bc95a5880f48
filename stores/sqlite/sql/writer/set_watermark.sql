-- Raises the watermark of an inbox.
-- ?1 inbox
-- ?2 watermark
-- Index: primary key of oncebox_inbox.
UPDATE oncebox_inbox SET watermark = max(watermark, ?2) WHERE id = ?1
