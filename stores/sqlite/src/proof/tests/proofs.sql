SELECT proofs FROM oncebox_counter
