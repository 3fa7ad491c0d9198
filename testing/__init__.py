"""Shared parts of tests and benches: servers, clusters, proxies, simulations. The product never imports it."""
