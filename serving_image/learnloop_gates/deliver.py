"""Hands a suite's report in: the one container of its pod that holds the data plane's token."""

import time
from hashlib import sha256
from pathlib import Path

import httpx

from learnloop_api import names
from learnloop_api.wire.gates import MOST_REPORT_BYTES
from learnloop_common.tls.contexts import client_context
from learnloop_gates.cases import SuiteError
from learnloop_gates.settings import DeliverySettings

TRIES, FIRST_PAUSE, LONGEST_PAUSE = 12, 1.0, 15.0


def deliver(settings: DeliverySettings) -> str:
    """Puts the report where the operator reads it; returns its digest. Retries while the data plane is unavailable.

    Raises:
        SuiteError: the report is missing or too long, or the data plane refuses it.
    """
    content = _report(Path(settings.gate_report))
    digest = sha256(content).hexdigest()
    url = f"{settings.data_url.rstrip('/')}/api/v1/models/{settings.model_deployment}/gates/{settings.gate_job}/report"
    why = "it was not asked"
    with httpx.Client(verify=client_context(), trust_env=False, timeout=10.0) as client:
        for attempt in range(TRIES):
            if attempt:
                time.sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (attempt - 1)))
            try:
                answer = client.put(url, content=content, headers=_headers(settings, digest))
            except httpx.HTTPError as error:
                why = str(error) or type(error).__name__
                continue
            if answer.is_success:
                return digest
            why = f"{answer.status_code} {answer.text[:500]}"
            if answer.status_code < 500 and answer.status_code != 429:
                break
    raise SuiteError(f"the data plane at {settings.data_url} refuses the report: {why}")


def _report(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_REPORT_BYTES + 1)
    except OSError as error:
        raise SuiteError(f"{path}: {error.strerror}: the suite's container must write its report there") from None
    if not 0 < len(content) <= MOST_REPORT_BYTES:
        raise SuiteError(f"{path}: {len(content)} bytes; a report has 1 to {MOST_REPORT_BYTES}")
    return content


def _headers(settings: DeliverySettings, digest: str) -> dict[str, str]:
    headers = {"x-learnloop-sha256": digest, names.HEADER_NAMESPACE: settings.namespace}
    token = Path(settings.token_file)
    if token.exists():
        headers["authorization"] = f"Bearer {token.read_text().strip()}"
    return headers
