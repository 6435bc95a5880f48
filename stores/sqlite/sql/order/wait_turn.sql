-- Makes one wait that was let go and does not run.
UPDATE oncebox_entry SET due = 9223372036854775807, not_before = due WHERE seq = ?1 AND handler = ?2 AND +due <> 9223372036854775807
