"""Which arm an episode gets, and the routing table that says so."""
