"""The trainer's Dockerfile for each accelerator; its commands run, with programs that only note."""

import re
import subprocess
from pathlib import Path

import pytest

from testing.fake_programs import Fakes

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = ROOT / "trainer_image" / "Dockerfile"
PYTHON = """
case "$*" in
  *torch.version.hip*) exit "${NO_ROCM:-0}" ;;
  *torch.__file__*) echo /base/site-packages ;;
  "-m venv"*)
    mkdir -p "${@: -1}/bin" "${@: -1}/lib/python3.13/site-packages"
    cp "$PIP" "${@: -1}/bin/pip" ;;
esac
"""


def run(tmp_path: Path, accelerator: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The RUN lines up to the installation, with /opt and the system's own Python somewhere else."""
    fakes = Fakes(tmp_path / "fakes")
    for name in ("python", "python3"):
        fakes.program(name, PYTHON)
    fakes.program("apt-get")
    fakes.program("readlink", 'echo "${BLAS:-/usr/lib/openblas-openmp/libblas.so.3}"')
    pip = fakes.program("pip")
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text(encoding="utf-8"))
    commands = re.findall(r"^RUN (case .*)$", text, re.MULTILINE)
    assert len(commands) == 2
    script = " && ".join(f"{{ {command}; }}" for command in commands)
    for real, ours in (("/opt/", f"{tmp_path}/opt/"), ("/usr/bin/python3", "python3"), ("rm -rf /var/", "echo /var/")):
        script = script.replace(real, ours)
    values = fakes.environment(ACCELERATOR=accelerator, PIP=str(pip), **environment)
    done = subprocess.run(["bash", "-ec", script], env=values, capture_output=True, text=True, check=False)
    return done, fakes.calls()


@pytest.mark.parametrize(
    ("accelerator", "lock"), [("cuda", "trainer"), ("cpu", "trainer-cpu"), ("rocm", "trainer-cpu")]
)
def test_each_accelerator_installs_the_lock_that_leaves_out_what_it_has(tmp_path, accelerator, lock):
    done, calls = run(tmp_path, accelerator)
    assert done.returncode == 0, done.stderr
    (install,) = [call for call in calls if call.startswith("pip install")]
    assert install.endswith(f"--require-hashes --requirement /requirements/{lock}.txt")
    assert any(call.startswith("apt-get install") for call in calls) == (accelerator == "cpu")
    torch = tmp_path / "opt/learnloop/lib/python3.13/site-packages/base-image.pth"
    assert (torch.read_text() if torch.exists() else "") == ("/base/site-packages\n" if accelerator == "rocm" else "")


def test_a_base_image_without_rocm_and_an_unknown_accelerator_are_refused_with_the_fix(tmp_path: Path) -> None:
    done, calls = run(tmp_path / "one", "rocm", NO_ROCM="1")
    assert (done.returncode, "name an image that has" in done.stderr) == (2, True)
    assert not [call for call in calls if call.startswith("pip")]
    done, _ = run(tmp_path / "two", "tpu")
    assert (done.returncode, "use cuda, cpu or rocm" in done.stderr) == (2, True)
