"""Code that several images share and that is not in the contract: HTTP, TLS, telemetry, redaction and so on."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime sends telemetry and keeps an id of the machine
