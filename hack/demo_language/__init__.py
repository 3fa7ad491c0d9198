"""`make demo-language`: a language model learns on a real Kubernetes, and what must not reach users does not."""
