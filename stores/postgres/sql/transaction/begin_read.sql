-- One view of everything, for operators.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY
