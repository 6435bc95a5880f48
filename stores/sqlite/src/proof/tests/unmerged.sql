SELECT count(*) FROM oncebox_message WHERE seq > (SELECT merged FROM oncebox_counter)
