SELECT count(*) - count(DISTINCT digest) FROM oncebox_message
