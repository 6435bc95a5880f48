SELECT handler, count(*) FROM oncebox_poisoned GROUP BY handler
