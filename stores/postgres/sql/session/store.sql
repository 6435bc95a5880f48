-- Settings of all sessions of the store, once per connection, or in every transaction through a pooler: `:scope` and
-- `:local` choose. The tables are empty when the server reads their statistics and full when it matters, so it must not
-- choose the plans.
SET :scope plan_cache_mode = force_generic_plan;
SET :scope jit = off;
SET :scope enable_seqscan = off;
SET :scope enable_bitmapscan = off;
SET :scope enable_mergejoin = off;
SET :scope statement_timeout = ':patience';
SET :scope lock_timeout = ':patience';
SET :scope idle_in_transaction_session_timeout = ':patience';
SET :scope client_min_messages = error;
-- Statements within one call see what was committed since it began, whatever the server's default is.
SET :scope default_transaction_isolation = 'read committed';
-- Acknowledged messages must be on disk, whatever the server's default is.
SELECT set_config('synchronous_commit', 'on', :local) WHERE current_setting('synchronous_commit') = 'off';
