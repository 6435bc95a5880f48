-- Reads the tenants setting of an inbox, as a process registered it.
-- ?1 inbox
-- Index: primary key of oncebox_inbox.
SELECT tenants FROM oncebox_inbox WHERE id = ?1
