-- Stores what is new, and says of the rest what is known of it, all of it in one call: see the function, which has the same values.
SELECT place, seq, fresh, stale, fingerprint, handlers, age
FROM oncebox_accept($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28)
