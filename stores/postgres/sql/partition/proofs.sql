-- Lists messages of a partition that are still remembered.
-- $1 first bigint: number
-- $2 last bigint: number
-- $3 limit bigint
-- Index: oncebox_proof_seq.
SELECT seq FROM oncebox_proof WHERE seq BETWEEN $1 AND $2 ORDER BY seq LIMIT $3
