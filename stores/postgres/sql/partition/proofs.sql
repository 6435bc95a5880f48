-- Messages of a partition that are still remembered; a limited number. $1 first and $2 last number, $3 how many.
SELECT seq FROM oncebox_proof WHERE seq BETWEEN $1 AND $2 ORDER BY seq LIMIT $3
