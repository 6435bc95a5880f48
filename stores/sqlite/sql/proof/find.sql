SELECT seq FROM oncebox_proof WHERE digest = ?1
