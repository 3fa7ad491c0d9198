"""etcd and the API server, the certificates of everybody who talks to them, and a small client."""
