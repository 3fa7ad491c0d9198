"""`python -m learnloop_gates run` and `python -m learnloop_gates deliver`, which hands a suite's report in.

The container that delivers is the one of its pod that holds the data plane's token.
"""

import sys
from hashlib import sha256
from pathlib import Path

from learnloop_api import names
from learnloop_api.wire.deployment import MOST_REPORT_BYTES
from learnloop_common.settings import ConfigurationError
from learnloop_gates import cases, model_client

PAUSES = (1.0, 2.0, 4.0, 8.0, *[15.0] * 7)


def deliver(settings: model_client.DeliverySettings) -> str:
    """Puts the report where the operator reads it; returns its digest. Retries while the data plane is unavailable.

    Raises:
        SuiteError: the report is missing or too long, or the data plane refuses it.
    """
    content = _report(Path(settings.gate_report))
    digest = sha256(content).hexdigest()
    url = f"{settings.data_url}/api/v1/models/{settings.model_deployment}/gates/{settings.gate_job}/report"
    headers = {"x-learnloop-sha256": digest, names.HEADER_NAMESPACE: settings.namespace}
    with model_client.client_of("", model_client.token_of(settings.token_file), 10.0) as client:
        try:
            answer = model_client.answered(client, url, PAUSES, method="PUT", content=content, headers=headers)
        except model_client.Unanswered as error:
            raise cases.SuiteError(f"the data plane does not take the report: {error}") from None
    if not answer.is_success:
        refusal = f"{answer.status_code} {answer.text[:500]}"
        raise cases.SuiteError(f"the data plane at {settings.data_url} refuses the report: {refusal}")
    return digest


def _report(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_REPORT_BYTES + 1)
    except OSError as error:
        raise cases.SuiteError(f"{path}: {error.strerror}: the suite's container must write its report there") from None
    if not 0 < len(content) <= MOST_REPORT_BYTES:
        raise cases.SuiteError(f"{path}: {len(content)} bytes; a report has 1 to {MOST_REPORT_BYTES}")
    return content


def main(arguments: list[str]) -> int:
    """Exit code 0: done; 1: the suite can say nothing, with the reason on standard error; 2: no such command."""
    try:
        if arguments == ["deliver"]:
            print(f"handed in {deliver(model_client.DeliverySettings.read())}")
            return 0
        if arguments == ["run"]:
            from learnloop_gates.suite_report import run  # the other container needs nothing of it

            report = run(model_client.SuiteSettings.read())
            print(f"{report.suite}: {report.failed} of {report.n} failed, {report.errors} without an answer")
            return 0
    except (cases.SuiteError, ConfigurationError) as error:
        print(error, file=sys.stderr)
        return 1
    print("usage: python -m learnloop_gates run|deliver", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
