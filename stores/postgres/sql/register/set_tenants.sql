-- Records the tenants setting of an inbox, unless another process changed it since it was read. $1 inbox, $2 setting, $3 what was
-- read.
UPDATE oncebox_inbox SET tenants = $2 WHERE id = $1 AND tenants IS NOT DISTINCT FROM $3
