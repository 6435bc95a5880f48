-- Lists all inboxes.
-- Index: none: the table is small.
SELECT id, name, watermark FROM oncebox_inbox
