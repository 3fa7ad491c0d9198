"""What the HTTP servers of all parts have in common: deadlines of sockets, and a second port for probes."""
