-- CHECK constraints of the four tables that every message writes. Created with the tables if the settings ask for them:
-- they slow down every statement that writes a single row, because the server reads and plans each constraint again.
ALTER TABLE oncebox_proof
    ADD CHECK (lane BETWEEN 0 AND 63),
    ADD CHECK (octet_length(digest) = 32),
    ADD CHECK (octet_length(fingerprint) = 16),
    ADD CHECK (octet_length(handlers) % 2 = 0);
ALTER TABLE oncebox_message
    ADD CHECK (lane = seq & 63),
    ADD CHECK (octet_length(digest) = 32);
ALTER TABLE oncebox_entry
    ADD CHECK (lane = seq & 63),
    ADD CHECK (token > 0),
    -- A lease has all of its columns, or none.
    ADD CHECK (num_nulls(token, claimed_at, lease_until, claim_id) IN (0, 4)),
    ADD CHECK (octet_length(order_key) = 16),
    ADD CHECK (attempts >= 0 AND crashes >= 0 AND generation >= 0);
ALTER TABLE oncebox_outcome
    ADD CHECK (lane = seq & 63),
    ADD CHECK (status IN ('completed', 'discarded')),
    ADD CHECK (token >= 0 AND attempts >= 0 AND crashes >= 0 AND generation >= 0);
