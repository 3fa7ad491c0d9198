"""What tests and benches share: servers, clusters, proxies, simulations. The product never imports it."""
