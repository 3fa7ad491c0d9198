"""The pod network: one bridge with the node's address, CNI's configuration, and their removal."""

import ipaddress
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from cluster.addresses import BRIDGE, BRIDGE_ADDRESS, POD_NETWORK, SERVICE_NETWORK
from cluster.state_folder import State
from toolkit.commands import run, succeeds
from toolkit.errors import Refusal

CNI_NETWORK = "learnloop"
CNI_RESULTS = Path("/var/lib/cni")
BRIDGE_FILTER = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
# Refused rather than lost: what tries to leave fails immediately instead of hanging, and with a pod's address as its
# source, no packet leaves this machine.
STAY_HERE = ["FORWARD", "-i", BRIDGE, "!", "-o", BRIDGE, "-j", "REJECT"]
KUBERNETES_CHAIN = re.compile(r"\bKUBE-[A-Z0-9-]+")


def check() -> None:
    """Raise Refusal when another interface of this machine uses the cluster's addresses."""
    ours = [ipaddress.ip_network(POD_NETWORK), ipaddress.ip_network(SERVICE_NETWORK)]
    for route in json.loads(run(["ip", "-json", "-4", "route"])):
        if route["dst"] == "default" or route.get("dev") == BRIDGE:
            continue
        other = ipaddress.ip_network(route["dst"])
        if any(other.overlaps(network) for network in ours):
            raise Refusal(
                f"{route['dst']} on {route.get('dev')} overlaps the cluster's networks {POD_NETWORK} and "
                f"{SERVICE_NETWORK}. Take that interface down, or use your own cluster: `CONTEXT=<context> make demo`."
            )


def ensure(state: State) -> None:
    """Make the bridge and write CNI's configuration. Raises CommandFailed."""
    if not Path(f"/sys/class/net/{BRIDGE}").exists():
        run(["ip", "link", "add", BRIDGE, "type", "bridge"])
    prefix = POD_NETWORK.split("/")[1]
    run(["ip", "address", "replace", f"{BRIDGE_ADDRESS}/{prefix}", "dev", BRIDGE])
    run(["ip", "link", "set", BRIDGE, "up"])
    # Answers between two pods of one bridge must pass iptables, or a Service's address is never translated back.
    if not BRIDGE_FILTER.exists():
        run(["modprobe", "br_netfilter"])
    for switch in (BRIDGE_FILTER, FORWARDING):
        if switch.read_text().strip() != "1":
            switch.write_text("1")
    if not succeeds(["iptables", "--wait", "--check", *STAY_HERE]):
        run(["iptables", "--wait", "--insert", *STAY_HERE])
    _write_configuration(state)


def remove(containers: Iterable[str]) -> None:
    """Remove the bridge, the firewall's Kubernetes chains and CNI's notes of our networks and containers."""
    if Path(f"/sys/class/net/{BRIDGE}").exists():
        run(["ip", "link", "delete", BRIDGE])
    succeeds(["iptables", "--wait", "--delete", *STAY_HERE])
    for family in ("iptables", "ip6tables"):
        _remove_chains(family)
    for pattern in (f"{CNI_NETWORK}-*", *(f"*-{container}-*" for container in containers)):
        for note in (CNI_RESULTS / "results").glob(pattern):
            note.unlink()
    _remove_if_empty([CNI_RESULTS / "results", CNI_RESULTS / "cache", CNI_RESULTS])


def _write_configuration(state: State) -> None:
    """No masquerade: pods talk to pods and to this machine, and to nothing beyond it."""
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(state.root / "addresses"),
            "ranges": [[{"subnet": POD_NETWORK}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    folder = state.config / "cni"
    folder.mkdir(exist_ok=True)
    new = folder / "new"
    new.write_text(json.dumps({"cniVersion": "0.4.0", "name": CNI_NETWORK, "plugins": [bridge]}, indent=1))
    new.rename(folder / "10-learnloop.conflist")


def _remove_chains(family: str) -> None:
    """Delete the rules that name a KUBE- chain, then the chains, table by table.

    Safe because `up` refuses to start next to another kubelet: on this machine those chains can only be ours.
    """
    if shutil.which(f"{family}-save") is None or not succeeds([f"{family}-save"]):
        return
    table = ""
    deletions: dict[str, list[str]] = {}
    for line in run([f"{family}-save"]).splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif KUBERNETES_CHAIN.search(line) and line.startswith("-A") and not line.startswith("-A KUBE-"):
            deletions.setdefault(table, []).append(f"-D{line[2:]}")
        elif line.startswith(":KUBE-"):
            deletions.setdefault(table, []).append(f"-F {line[1:].split()[0]}")
    for table, rules in deletions.items():
        chains = [f"-X {rule[3:]}" for rule in rules if rule.startswith("-F ")]
        text = "\n".join([f"*{table}", *_flush_last(rules), *chains, "COMMIT", ""])
        run([f"{family}-restore", "--noflush"], stdin=text)


def _flush_last(rules: Iterable[str]) -> list[str]:
    """Chains must be empty, and without anyone who jumps to them, before they can be deleted."""
    return sorted(rules, key=lambda rule: rule.startswith("-F "))


def _remove_if_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            continue
