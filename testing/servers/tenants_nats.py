"""NATS as the chart configures it: accounts, auth callout, and clients that come with a service-account token."""

import base64
from pathlib import Path

import nats
from nats.aio.client import Client

from learnloop_api import names
from learnloop_dataplane.nats import auth_callout

ROOT = Path(__file__).parents[2]
SEED = base64.b64encode(bytes(range(32))).decode()
PASSWORD = "known"
LOGIN = {"nats_user": "learnloop", "nats_password": PASSWORD, "nats_issuer_key": SEED}


def accounts(directory: Path, *, keys: str = SEED, passwords: str = PASSWORD) -> str:
    """The part of the chart's configuration under test, with issuer and users as the init container writes them."""
    key, password, conf = directory / "key", directory / "password", directory / "issuer.conf"
    key.write_text(keys)
    password.write_text(passwords)
    assert auth_callout.main([str(key), str(conf), f"--passwords={password}"]) == 0
    template = (ROOT / "charts/learnloop/templates/nats/_config.tpl").read_text()
    chart = template.split("nats.conf: |\n")[1].split("{{- end -}}")[0]
    return conf.read_text() + chart[chart.index("  accounts {") :]


async def connected(
    url: str, token: str, namespace: str, errors: list[str], *, account: str = "default", inbox: str | None = None
) -> Client:
    """A tenant's client; what the server complains of goes into `errors`."""

    async def on_error(error: Exception) -> None:
        errors.append(str(error))

    return await nats.connect(
        url,
        token=token,
        inbox_prefix=inbox or names.nats_inbox(namespace, account),
        allow_reconnect=False,
        connect_timeout=20,
        error_cb=on_error,
    )
