"""The Kubernetes API: the client, its cache, its watches and the kinds of other operators."""
