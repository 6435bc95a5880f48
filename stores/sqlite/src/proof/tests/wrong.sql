SELECT count(*) FROM oncebox_proof p JOIN oncebox_message m ON m.seq = p.seq WHERE m.digest <> p.digest
