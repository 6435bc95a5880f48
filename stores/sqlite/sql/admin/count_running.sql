SELECT handler, count(*) FROM oncebox_running GROUP BY handler
