"""Code that several images share and that is not part of the contract: HTTP, TLS, telemetry, redaction, policies, reward rules."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime sends telemetry and keeps an id of the machine
