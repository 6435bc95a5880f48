SELECT seq, convert_from(id, 'UTF8') FROM oncebox_message ORDER BY seq
