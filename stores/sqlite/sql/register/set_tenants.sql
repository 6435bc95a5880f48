-- Stores the tenants setting of an inbox.
-- ?1 inbox
-- ?2 setting
-- Index: primary key of oncebox_inbox.
UPDATE oncebox_inbox SET tenants = ?2 WHERE id = ?1
