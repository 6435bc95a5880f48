-- Reads the time up to which messages of some handlers may have been swept.
-- $1 handlers smallint[]
-- Index: primary key of oncebox_handler.
SELECT max(watermark) FROM oncebox_handler WHERE id = ANY ($1)
