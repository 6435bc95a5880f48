-- Reads the tenants setting of an inbox, as a process registered it.
-- $1 inbox smallint
-- Index: primary key of oncebox_inbox.
SELECT tenants FROM oncebox_inbox WHERE id = $1
