SELECT handler, status, count(*) FROM oncebox_outcome GROUP BY handler, status
