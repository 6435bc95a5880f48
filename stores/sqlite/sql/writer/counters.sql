SELECT seq, token, merged, pass_upto, pass_slice, proofs, swept FROM oncebox_counter
