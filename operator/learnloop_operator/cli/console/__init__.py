"""`kubectl learnloop console`: pages in a browser, served on loopback with the caller's own kubeconfig and rights."""
