SELECT handler, count(*) FROM oncebox_entry GROUP BY handler
