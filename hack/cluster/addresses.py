"""The names and addresses of the local cluster."""

CONTEXT = "learnloop-local"
NODE = "node0"
BRIDGE = "learnloop0"
BRIDGE_ADDRESS = "10.85.0.1"
POD_NETWORK = "10.85.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
KUBERNETES_SERVICE = "10.96.0.1"
