SELECT seq, received_at, tenant, fingerprint FROM @proof WHERE lane = $1 AND digest = $2 AND inbox = $3
