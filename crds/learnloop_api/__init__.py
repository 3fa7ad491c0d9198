"""The contract every part of learnloop shares: custom resources, wire formats and names.

Nothing here does I/O. The operator, the trainer, the policy server, the data plane and the SDK
import this package and never one another.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime sends telemetry and keeps an id of the machine
