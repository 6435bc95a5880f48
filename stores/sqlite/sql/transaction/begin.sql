-- Waits for its turn now: a transaction that begins to write half-way could only fail then.
BEGIN IMMEDIATE
