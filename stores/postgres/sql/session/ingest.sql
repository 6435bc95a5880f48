-- Accepting joins what was sent with what of it was new: both are as long as the batch.
SET enable_nestloop = off;
SET work_mem = '16MB';
