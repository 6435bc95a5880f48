-- Ends the part of a call, and keeps what it wrote.
RELEASE oncebox_accept
