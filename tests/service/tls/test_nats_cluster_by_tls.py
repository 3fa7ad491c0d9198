"""A NATS cluster as the chart configures it: a stranger with a certificate of the same authority stays out."""

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testing.certificates import Folder, authority, folder
from testing.servers.ports import held_port
from testing.servers.tls_parts import HELPERS, wait_for
from testing.waiting import until

CONFIG = Path(__file__).parents[3] / "charts/learnloop/templates/nats/_config.tpl"


def cluster_block(files: Folder, port: int, routes: list[str]) -> str:
    """The chart's own block, with this test's files and addresses."""
    text = CONFIG.read_text()
    suites = HELPERS.read_text().partition('"learnloop.tls.suites" -}}\n')[2].partition("\n")[0]
    block = text[text.index("  cluster {") : text.index("    routes: [")]
    block = block.replace('{{ include "learnloop.tls.suites" . }}', suites)
    for name, path in (("tls.crt", files.certificate), ("tls.key", files.key), ("ca.crt", files.bundle)):
        block = block.replace(f"/run/tls/{name}", str(path))
    return block.replace("0.0.0.0:6222", f"127.0.0.1:{port}") + f"    routes: [{', '.join(routes)}]\n  }}\n"


@contextmanager
def server(directory: Path, name: str, ports: tuple[int, int, int], files: Folder, routes: list[str]) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "nats.conf"
    config.write_text(
        f"server_name: {name}\nlisten: 127.0.0.1:{ports[0]}\nhttp: 127.0.0.1:{ports[1]}\n"
        + cluster_block(files, ports[2], routes)
    )
    binary = shutil.which("nats-server")
    process = subprocess.Popen([binary, "--config", str(config)], stderr=subprocess.DEVNULL)
    try:
        wait_for(ports[0])
        yield
    finally:
        process.kill()
        process.wait()


def neighbours(port: int) -> set[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/routez", timeout=10) as answer:
        routes = json.load(answer)
    return {route["remote_name"] for route in routes["routes"]}


def test_servers_join_by_their_names_and_a_tenants_certificate_does_not_open_the_door(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    root = authority("ours")
    own = folder(tmp_path / "own" / "tls", root)
    pods = folder(tmp_path / "pod" / "tls", root, "cart.red.svc")
    with ExitStack() as stack:
        first, second, stranger = (
            (stack.enter_context(held_port()), stack.enter_context(held_port()), stack.enter_context(held_port()))
            for _ in range(3)
        )
        routes = [f"tls://localhost:{ports[2]}" for ports in (first, second)]
        stack.enter_context(server(tmp_path / "0", "nats-0", first, own, routes))
        stack.enter_context(server(tmp_path / "1", "nats-1", second, own, routes))
        until(lambda: neighbours(first[1]) == {"nats-1"} and neighbours(second[1]) == {"nats-0"})
        with server(tmp_path / "2", "stranger", stranger, pods, routes):
            time.sleep(3)  # it tries again every second
            assert neighbours(stranger[1]) == set()
            assert neighbours(first[1]) == {"nats-1"}
        # The same with a certificate of ours is let in: it is the certificate that kept the stranger out.
        with server(tmp_path / "3", "third", stranger, own, routes):
            until(lambda: "third" in neighbours(first[1]))
