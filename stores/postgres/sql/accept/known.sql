-- What a key is known with, held until the transaction ends.
SELECT seq, fingerprint, handlers FROM @proof WHERE lane = $1 AND digest = $2 FOR UPDATE
