"""How a policy becomes actions: the one code by which policy servers act and by which evaluation proves them."""
