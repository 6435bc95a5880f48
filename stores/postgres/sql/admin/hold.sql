-- Holds the proof of a key against others who give it work, or forget it.
UPDATE oncebox_proof SET handlers = handlers WHERE lane = $1 AND digest = $2 RETURNING seq
