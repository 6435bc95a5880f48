-- The same as `check`, inside a statement that begins a transaction behind a pooler and takes no parameters. `:now` and
-- `:seen` stand for them.
SELECT timeline, epoch FROM oncebox_check_timeline(:now, :seen)
