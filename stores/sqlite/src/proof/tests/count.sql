SELECT count(*) FROM oncebox_proof
