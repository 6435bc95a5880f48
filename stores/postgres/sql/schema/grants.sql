-- All that a role needs to use the tables without owning them. `:role` is who gets it.
GRANT USAGE ON SCHEMA ":schema" TO :role;
GRANT SELECT ON @schema TO :role;
GRANT SELECT, UPDATE ON @meta, @segment TO :role;
GRANT SELECT, INSERT, UPDATE ON @inbox, @handler, @handler_key, @timeline TO :role;
GRANT SELECT, INSERT, UPDATE, DELETE ON @window, @walk TO :role;
GRANT SELECT, INSERT, UPDATE, DELETE ON @proof, @operation, @absorbed,
    @attempt, @entry, @later,
    @claim, @poisoned, @quarantine, @mark TO :role;
GRANT SELECT, INSERT, DELETE ON @message TO :role;
GRANT SELECT, INSERT, UPDATE, DELETE ON @outcome TO :role;
GRANT SELECT, DELETE ON @message_kept, @outcome_kept TO :role;
GRANT USAGE, SELECT ON SEQUENCE @counter TO :role;
GRANT USAGE, SELECT, UPDATE ON SEQUENCE @token TO :role;
GRANT EXECUTE ON FUNCTION @make_segment, @drop_payload, @drop_segment,
    @accept, @accept_new, @settle, @release, @park,
    @step_back, @hold, @mark TO :role;
-- Good to have from PostgreSQL 17 on, for busy inboxes: GRANT MAINTAIN ON @entry TO :role;
