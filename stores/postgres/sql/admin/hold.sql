-- Locks the proof of a key against transactions that add work to it or forget it.
-- $1 lane smallint
-- $2 digest bytea
-- Index: primary key of oncebox_proof.
-- Lock order: the row of oncebox_proof, until the transaction ends.
UPDATE oncebox_proof SET handlers = handlers WHERE lane = $1 AND digest = $2 RETURNING seq
