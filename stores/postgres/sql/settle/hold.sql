-- Locks the rows of claims that hold. Returns their places.
-- $1 place integer[] (by claim)
-- $2 lane smallint[]
-- $3 handler smallint[]
-- $4 seq bigint[]
-- $5 token bigint[]
-- $6 claim_id uuid[]
-- Index: primary key of oncebox_entry.
-- Lock order: oncebox_entry in the order of the parameters, which all callers share, until the transaction ends.
SELECT place FROM oncebox_hold($1, $2, $3, $4, $5, $6) AS place
