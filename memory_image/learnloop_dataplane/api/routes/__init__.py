"""HTTP routers, one file for each resource."""
