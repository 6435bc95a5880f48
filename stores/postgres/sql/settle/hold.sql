-- Locks the rows of claims that hold, until the transaction ends. By claim, in the order in which everybody locks them: $1 place,
-- $2 lane, $3 handler, $4 number, $5 token, $6 claim id.
SELECT place FROM oncebox_hold($1, $2, $3, $4, $5, $6) AS place
