-- Lists all inboxes.
-- Index: none: the table is small.
SELECT id, name FROM oncebox_inbox
