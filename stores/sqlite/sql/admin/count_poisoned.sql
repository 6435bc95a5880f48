SELECT handler, count(*) FROM oncebox_poisoned WHERE seq > 0 GROUP BY handler
