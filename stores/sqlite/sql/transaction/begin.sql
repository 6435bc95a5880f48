-- Begins a transaction and takes the write lock at once: a transaction that begins to write later could only fail.
BEGIN IMMEDIATE
