SELECT seq, received_at, tenant, fingerprint FROM oncebox_proof WHERE lane = $1 AND digest = $2 AND inbox = $3
