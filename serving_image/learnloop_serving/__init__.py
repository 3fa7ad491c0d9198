"""Policy server: one ONNX policy behind Open Inference Protocol v2 and the episodes API."""
