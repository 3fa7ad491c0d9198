"""What nobody has asked for is not imported: each library costs every process memory and a part of its start."""

import os
import subprocess
import sys
from pathlib import Path

STARTED = """
import sys
from learnloop_dataplane.api.app import create_app
from learnloop_dataplane.config import Config
create_app(Config.model_validate({values}))
print(*(name for name in {libraries} if name in sys.modules))
"""
LIBRARIES = (
    "alembic",
    "cryptography",
    "grpc",
    "httpx",
    "jsonschema_rs",
    "jwt",
    "numpy.random",
    "onnxruntime",
    "sqlalchemy",
    "weaviate",
)


def imported(directory: Path, **settings: str) -> set[str]:
    """Which of them a service of its own process has imported before its first request."""
    values = {"dsn": "postgresql://user@localhost/none", "artifacts": f"file://{directory}"} | settings
    program = STARTED.format(values=values, libraries=LIBRARIES)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_service_that_verifies_no_tokens_imports_nothing_to_verify_them_with(tmp_path: Path) -> None:
    assert imported(tmp_path, auth="none") == set()


def test_a_service_that_verifies_tokens_has_what_it_needs_before_the_first_one_comes(tmp_path: Path) -> None:
    assert imported(tmp_path) == {"cryptography", "httpx", "jwt"}
