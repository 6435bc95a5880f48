-- Accepting joins what was sent with what of it was new: both are as long as the batch.
SET :scope enable_nestloop = off;
SET :scope work_mem = '16MB';
