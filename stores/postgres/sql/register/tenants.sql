-- Reads the tenants setting of an inbox, as a process registered it. $1 inbox.
SELECT tenants FROM oncebox_inbox WHERE id = $1
