"""A model behind OpenAI's wire format, asked with care, by the settings of a suite's Job: nothing is guessed."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import httpx
import orjson
from pydantic import AfterValidator, Field

from learnloop_api import names
from learnloop_api.wire.deployment import REPORT_FILE
from learnloop_common import chat, settings, tls
from learnloop_gates.cases import Case, Reply, ToolCall

Url = Annotated[str, AfterValidator(lambda url: url.rstrip("/"))]
_JOB = "a suite runs in the Job that the operator makes for it"


class DeliverySettings(settings.EnvironmentSettings):
    """Settings of the container that hands the report in."""

    model_deployment: str = Field(description=_JOB)
    gate_job: str = Field(description=_JOB)
    namespace: str = Field(description=_JOB)
    data_url: Url = Field(description=_JOB)
    gate_report: str = REPORT_FILE
    token_file: str = names.TOKEN_FILE


class SuiteSettings(settings.EnvironmentSettings, env_prefix="LEARNLOOP_GATE_"):
    """Settings of the container that asks the candidate. `candidate` and `stable` are revisions."""

    suite: str = Field(description=_JOB)
    builtin: str = "garak"
    samples: int = Field(default=100, ge=1, le=100_000, description="set a number from 1 to 100000")
    deployment: str = Field(validation_alias="LEARNLOOP_MODEL_DEPLOYMENT", description=_JOB)
    candidate: str = Field(description=_JOB)
    candidate_url: Url = Field(description=_JOB)
    stable: str = ""
    stable_url: Url = ""
    seconds: float = Field(default=600.0, ge=0, le=1e7, description="set a number from 0 to 1e7")
    data: str = Field(default="", description="folder of .jsonl files; empty: the suite's own prompts")
    judge_url: Url = ""
    judge_model: str = ""
    judge_key: str = ""
    report: str = REPORT_FILE
    token_file: str = Field(default="", validation_alias=names.ENV_TOKEN_FILE)


MOST_BYTES = 4 * 2**20


class Unanswered(Exception):
    """No answer that can be judged; the message says why."""


def answered(client: httpx.Client, url: str, pauses: Iterable[float] = (0.4, 0.8), **options: Any) -> httpx.Response:
    """The answer to a POST, or to another `method`, sent again after each pause while the server is away or busy.

    Raises:
        Unanswered: it stays so.
    """
    why = ""
    for pause in (*pauses, 0.0):
        try:
            answer = client.request(**{"method": "POST", "url": url, **options})
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
        else:
            if answer.status_code < 500 and answer.status_code != 429:
                return answer
            why = f"{answer.status_code} {answer.text[:500]}"
        time.sleep(pause)
    raise Unanswered(f"{url}: {why}")


def client_of(arm: str, key: str, seconds: float) -> httpx.Client:
    """Connections to one arm, or to a server that knows no arms; `key`: sent as a Bearer token where there is one."""
    headers = {"content-type": "application/json"}
    headers |= {names.HEADER_ARM: arm} if arm else {}
    headers |= {"authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(verify=tls.client_context(), trust_env=False, timeout=seconds, headers=headers)


class ModelClient:
    """One arm, or a judge.

    Args:
        url: where `/v1/chat/completions` is.
        model: the name the server knows the model by.
        arm: revision that is to answer; "" for a server that knows no arms.
        key: sent as a Bearer token where it is not empty.
    """

    def __init__(self, url: str, model: str, *, arm: str = "", key: str = "", seconds: float = 60.0) -> None:
        base = url.rstrip("/")
        self._url = f"{base}/chat/completions" if base.endswith("/v1") else f"{base}/v1/chat/completions"
        self._model, self._fields = model, chat.ChatFields()
        self._client = client_of(arm, key, seconds)

    def close(self) -> None:
        self._client.close()

    def ask(self, case: Case, *, most_tokens: int = 256) -> Reply:
        """The answer at temperature 0.

        Raises:
            Unanswered: three times no answer, or one that is not OpenAI's format.
        """
        body: dict[str, Any] = {
            "model": self._model,
            "messages": list(case.messages),
            "temperature": 0,
            "max_tokens": most_tokens,
        }
        if case.tools:
            body["tools"] = list(case.tools)
        refusal = ""
        while True:
            sent = self._fields.of(body)
            answer = answered(self._client, self._url, content=orjson.dumps(sent))
            if answer.status_code == 200 and len(answer.content) <= MOST_BYTES:
                return reply_of(answer.content)
            refusal = refusal or f"{answer.status_code} {answer.text[:300]}"
            if answer.status_code not in (400, 422) or not self._fields.refused(sent, answer.text):
                raise Unanswered(f"{self._url}: {refusal}")


def token_of(path: str) -> str:
    """The service-account token in a file; "" where there is none."""
    file = Path(path) if path else None
    return file.read_text().strip() if file and file.exists() else ""


def reply_of(content: bytes) -> Reply:
    """The reply in the body of an answer.

    Raises:
        Unanswered: it is not OpenAI's format, or there is nothing in it that could be judged.
    """
    try:
        body = orjson.loads(content)
        choice = body["choices"][0]
        message = choice["message"]
        calls = [_call(item) for item in message.get("tool_calls") or ()]
        tokens = int((body.get("usage") or {}).get("completion_tokens") or 0)
        text = str(message.get("content") or message.get("refusal") or "")
        reply = Reply(text, tuple(calls), tokens, choice.get("finish_reason") == "length")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise Unanswered(f"the answer is not OpenAI's format: {error!r}"[:300]) from None
    if reply.cut and not reply.text.strip() and not reply.calls:
        # Reasoning without an answer would pass every suite in which silence is harmless.
        raise Unanswered("the answer was cut off before it said anything")
    return reply


def _call(item: Mapping[str, Any]) -> ToolCall:
    function = item["function"]
    arguments = function.get("arguments")
    return ToolCall(
        str(function["name"]), arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    )
