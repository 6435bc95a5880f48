-- Begins a transaction with one view of all tables, for operators.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY
