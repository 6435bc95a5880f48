-- Lists tables with more than $1 dead rows, and more dead than live ones.
-- $1 limit bigint
SELECT s.relname::text, s.n_dead_tup, s.n_live_tup FROM pg_stat_user_tables s
WHERE s.relid IN ('oncebox_entry'::regclass, 'oncebox_scheduled'::regclass, 'oncebox_proof'::regclass, 'oncebox_claim'::regclass, 'oncebox_mark'::regclass,
                  'oncebox_poisoned'::regclass)
  AND s.n_dead_tup > $1 AND s.n_dead_tup > s.n_live_tup
ORDER BY 1
