-- Releases the first entry of each queue that may run, and parks entries behind one that parks: see the function
-- `release`. Returns the least number that became work, by lane and handler.
-- $1 now bigint or NULL (server clock)
-- $2 lane smallint[] (by queue)
-- $3 handler smallint[]
-- $4 order_key bytea[]
-- Index: oncebox_scheduled_order, oncebox_entry_order, oncebox_poisoned_order.
-- Lock order: needs the locks of the queues (`lock`), taken by an earlier statement.
SELECT lane, handler, seq FROM oncebox_release($1, $2, $3, $4, false)
