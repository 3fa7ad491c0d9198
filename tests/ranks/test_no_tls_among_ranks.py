"""Why ranks meet in plain text: the PyTorch of the lock has no other transport. See docs/decisions."""

import os
import subprocess
import sys

ASK = "import torch.distributed as dist; dist.ProcessGroupGloo.create_device(hostname='127.0.0.1')"


def test_this_pytorch_has_no_tls_for_gloo() -> None:
    """When this fails there is TLS: then the decision is to be made anew."""
    plain = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, timeout=240, check=False)
    assert plain.returncode == 0, plain.stderr
    files = {f"GLOO_DEVICE_TRANSPORT_TCP_TLS_{part}": "/dev/null" for part in ("PKEY", "CERT", "CA_FILE")}
    environment = os.environ | {"GLOO_DEVICE_TRANSPORT": "TCP_TLS"} | files
    asked = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert asked.returncode != 0
    assert "unsupported gloo device" in asked.stderr
