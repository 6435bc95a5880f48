-- Records the tenants setting of an inbox. ?1 inbox, ?2 setting.
UPDATE oncebox_inbox SET tenants = ?2 WHERE id = ?1
