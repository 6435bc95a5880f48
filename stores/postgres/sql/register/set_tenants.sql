-- Stores the tenants setting of an inbox, unless another process changed it since it was read.
-- $1 inbox smallint
-- $2 setting text
-- $3 setting text: as read, or NULL
-- Index: primary key of oncebox_inbox.
-- Lock order: the row of oncebox_inbox.
UPDATE oncebox_inbox SET tenants = $2 WHERE id = $1 AND tenants IS NOT DISTINCT FROM $3
