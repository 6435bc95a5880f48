-- What connections of the store are told, once each; through a pooler in every transaction. `:scope` and `:local` say which.
-- The tables are empty when the server looks at their statistics and full when it matters: plans are not left to it.
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
-- What is acknowledged must be stored, whatever the server does for others.
SELECT set_config('synchronous_commit', 'on', :local) WHERE current_setting('synchronous_commit') = 'off';
