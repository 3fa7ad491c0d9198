"""`kubectl learnloop`: one file per verb, with the caller's kubeconfig and rights."""
