SELECT seq, CAST(id AS TEXT) FROM oncebox_message ORDER BY seq
