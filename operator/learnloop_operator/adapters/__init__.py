"""The world outside: Kubernetes, Kubeflow, Prometheus, Gateway API, the data plane."""
