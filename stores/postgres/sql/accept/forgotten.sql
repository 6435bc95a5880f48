-- Until when messages of some handlers may have been forgotten. $1 the handlers.
SELECT max(watermark) FROM oncebox_handler WHERE id = ANY ($1)
