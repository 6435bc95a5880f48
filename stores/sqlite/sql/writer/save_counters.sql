UPDATE oncebox_counter
SET seq = ?1, token = ?2, merged = ?3, pass_upto = ?4, pass_slice = ?5, proofs = ?6, swept = ?7
