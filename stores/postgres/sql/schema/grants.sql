-- Grants a role everything that it needs to use the tables without owning them. `:role` is the role.
GRANT USAGE ON SCHEMA ":schema" TO :role;
GRANT SELECT ON oncebox_schema TO :role;
GRANT SELECT, UPDATE ON oncebox_meta, oncebox_partition TO :role;
GRANT SELECT, INSERT, UPDATE ON oncebox_inbox, oncebox_handler, oncebox_handler_key, oncebox_timeline TO :role;
GRANT SELECT, INSERT, UPDATE, DELETE ON oncebox_window, oncebox_sweep_cursor TO :role;
GRANT SELECT, INSERT, UPDATE, DELETE ON oncebox_proof, oncebox_operation, oncebox_duplicate,
    oncebox_attempt, oncebox_entry, oncebox_scheduled,
    oncebox_claim, oncebox_poisoned, oncebox_quarantine, oncebox_mark TO :role;
GRANT SELECT, INSERT, DELETE ON oncebox_message TO :role;
GRANT SELECT, INSERT, UPDATE, DELETE ON oncebox_outcome TO :role;
GRANT SELECT, DELETE ON oncebox_message_kept, oncebox_outcome_kept TO :role;
GRANT USAGE, SELECT ON SEQUENCE oncebox_counter TO :role;
GRANT USAGE, SELECT, UPDATE ON SEQUENCE oncebox_token TO :role;
GRANT EXECUTE ON FUNCTION oncebox_make_partition, oncebox_drop_payload, oncebox_drop_partition,
    oncebox_accept, oncebox_accept_new, oncebox_settle, oncebox_release, oncebox_park,
    oncebox_wait_turn, oncebox_hold, oncebox_mark TO :role;
-- For busy inboxes on PostgreSQL 17 and later, also: GRANT MAINTAIN ON oncebox_entry TO :role;
