"""The plugin reaches a cluster by the caller's own kubectl, which ends with it and serves no other user."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from learnloop_operator.cli.main import main
from testing.waiting import until

PROGRAM = """
import sys, time
from learnloop_operator.cli.cluster import KubernetesCluster
cluster = KubernetesCluster(sys.argv[1], None, "default")
print(cluster.user(), cluster._proxy._socket, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("text", ["a word", "- a list", "clusters: 3", "{", None])
def test_a_file_that_is_no_kubeconfig_is_one_sentence(text, api_server, tmp_path, capsys):
    file = tmp_path / "config"
    if text is not None:
        file.write_text(text)
    assert main(["--kubeconfig", str(file), "why", "x"]) == 1
    error = capsys.readouterr().err
    assert (error.startswith("error: no usable kubeconfig: "), error.count("\n")) == (True, 1)


@pytest.mark.parametrize("ending", [None, signal.SIGTERM, signal.SIGKILL])
def test_only_the_caller_can_open_the_socket_and_kubectl_ends_with_the_command(api_server, ending):
    command = [sys.executable, "-c", PROGRAM, str(api_server)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        user, path = process.stdout.readline().split()
        mode = os.stat(os.path.dirname(path)).st_mode & 0o777
        if ending is not None:
            process.send_signal(ending)
        process.communicate()
    assert (user, mode) == ("admin", 0o700)
    until(lambda: not answers(path))


def answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0
