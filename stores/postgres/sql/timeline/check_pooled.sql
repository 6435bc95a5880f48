-- The same within a statement that begins a transaction behind a pooler, which takes no values. `:now` and `:seen` stand for them.
SELECT timeline, epoch FROM oncebox_check_timeline(:now, :seen)
