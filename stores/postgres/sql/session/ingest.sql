-- Settings of sessions that accept: they join a batch with the new part of it, which is as long. `:scope` is SESSION or
-- LOCAL.
SET :scope enable_nestloop = off;
SET :scope work_mem = '16MB';
