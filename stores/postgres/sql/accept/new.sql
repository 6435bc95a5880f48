-- Stores messages that are all new, or nothing: see the function, which has the same values.
SELECT places, seqs
FROM oncebox_accept_new($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
