-- Undoes the part of a call that failed. The transaction of the caller stays open.
ROLLBACK TO oncebox_accept
