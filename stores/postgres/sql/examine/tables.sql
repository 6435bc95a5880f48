-- Tables with more dead rows than $1, and than living ones.
SELECT s.relname::text, s.n_dead_tup, s.n_live_tup FROM pg_stat_user_tables s
WHERE s.relid IN ('@entry'::regclass, '@scheduled'::regclass, '@proof'::regclass, '@claim'::regclass, '@mark'::regclass,
                  '@poisoned'::regclass)
  AND s.n_dead_tup > $1 AND s.n_dead_tup > s.n_live_tup
ORDER BY 1
