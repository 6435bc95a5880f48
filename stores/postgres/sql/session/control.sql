-- Settings of sessions that claim and settle: they find every row by its key. `:scope` is SESSION or LOCAL.
SET :scope enable_hashjoin = off;
