-- All that a role needs to use the tables without owning them. `:role` is who gets it.
GRANT USAGE ON SCHEMA ":schema" TO :role;
GRANT SELECT ON @schema TO :role;
GRANT SELECT, UPDATE ON @meta, @partition TO :role;
GRANT SELECT, INSERT, UPDATE ON @inbox, @handler, @handler_key, @timeline TO :role;
GRANT SELECT, INSERT, UPDATE, DELETE ON @window, @sweep_cursor TO :role;
GRANT SELECT, INSERT, UPDATE, DELETE ON @proof, @operation, @duplicate,
    @attempt, @entry, @scheduled,
    @claim, @poisoned, @quarantine, @mark TO :role;
GRANT SELECT, INSERT, DELETE ON @message TO :role;
GRANT SELECT, INSERT, UPDATE, DELETE ON @outcome TO :role;
GRANT SELECT, DELETE ON @message_kept, @outcome_kept TO :role;
GRANT USAGE, SELECT ON SEQUENCE @counter TO :role;
GRANT USAGE, SELECT, UPDATE ON SEQUENCE @token TO :role;
GRANT EXECUTE ON FUNCTION @make_partition, @drop_payload, @drop_partition,
    @accept, @accept_new, @settle, @release, @park,
    @wait_turn, @hold, @mark TO :role;
-- Good to have from PostgreSQL 17 on, for busy inboxes: GRANT MAINTAIN ON @entry TO :role;
