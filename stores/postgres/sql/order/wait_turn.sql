-- Makes released entries wait again if an older entry of their queue has arrived since: see the function `wait_turn`.
-- $1 lane smallint[] (by queue)
-- $2 handler smallint[]
-- $3 order_key bytea[]
-- Index: oncebox_entry_order, oncebox_scheduled_order.
-- Lock order: needs the locks of the queues (`lock`), taken by an earlier statement.
SELECT oncebox_wait_turn($1, $2, $3)
