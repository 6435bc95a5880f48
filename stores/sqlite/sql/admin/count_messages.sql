SELECT count(*) FROM oncebox_message WHERE inbox = ?1
