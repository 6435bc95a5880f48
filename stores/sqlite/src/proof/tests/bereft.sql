SELECT count(*) FROM oncebox_proof WHERE seq NOT IN (SELECT seq FROM oncebox_message)
