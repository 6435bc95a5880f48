-- A row if this sweep may go on: nobody else sweeps, or whoever did has not come back in time. Others are kept away until the
-- transaction ends. $1 now or nothing, $2 inbox, $3 the sweep.
SELECT 1 FROM oncebox_inbox
WHERE id = $2
  AND (sweeper IS NULL OR sweeper = $3
       OR sweeper_until < coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint))
FOR NO KEY UPDATE SKIP LOCKED
