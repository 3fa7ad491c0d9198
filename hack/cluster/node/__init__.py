"""The one node: the container runtime and its images, the network, the kubelet and the controllers."""
