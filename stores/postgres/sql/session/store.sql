-- What connections of the store are told, once each; through a pooler in every transaction. `:local` says which.
-- The tables are empty when the server looks at their statistics and full when it matters: plans are not left to it.
SET plan_cache_mode = force_generic_plan;
SET jit = off;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_mergejoin = off;
SET statement_timeout = ':patience';
SET lock_timeout = ':patience';
SET idle_in_transaction_session_timeout = ':patience';
SET client_min_messages = error;
-- Statements within one call see what was committed since it began, whatever the server's default is.
SET default_transaction_isolation = 'read committed';
-- What is acknowledged must be stored, whatever the server does for others.
SELECT set_config('synchronous_commit', 'on', :local) WHERE current_setting('synchronous_commit') = 'off';
