"""The console answers its own browser alone, resumes where a reader was, and steers by the command line's verbs."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from learnloop_operator.cli.console.change_log import ChangeLog
from learnloop_operator.cli.console.server import MOST_BODY, PAGES, Console, open_console
from learnloop_operator.cli.data_plane_access import DataPlaneAccess
from testing.browsers.console_server import Browser, WrittenCluster, served

MOST_BYTES = 200_000
ORDER = {"namespace": "ns", "verb": "pause", "name": "walker"}


def rollout(name: str = "walker", namespace: str = "ns", **status) -> dict:
    return {"metadata": {"name": name, "namespace": namespace, "managedFields": [1]}, "spec": {}, "status": status}


@pytest.fixture
def cluster() -> WrittenCluster:
    return WrittenCluster()


@pytest.fixture
def pair(cluster: WrittenCluster) -> Iterator[tuple[Console, Browser]]:
    with served(cluster) as (console, browser):
        assert browser.enter(console.gate.token) == 303
        yield console, browser


def test_the_token_is_exchanged_once_for_a_cookie_that_no_script_reads(cluster: WrittenCluster) -> None:
    with served(cluster) as (console, browser):
        assert browser.ask("GET", "/")[0] == 403
        assert browser.ask("GET", "/?token=wrong")[0] == 403
        status, headers, _ = browser.ask("GET", f"/?token={console.gate.token}")
        assert status == 303
        assert headers["Set-Cookie"].endswith("; Path=/; HttpOnly; SameSite=Strict")
        assert browser.ask("GET", f"/?token={console.gate.token}")[0] == 403, "the second time"


def test_a_browser_without_a_session_gets_a_page_that_says_what_to_do(cluster: WrittenCluster) -> None:
    with served(cluster) as (_, browser):
        status, headers, body = browser.ask("GET", "/", Accept="text/html,*/*;q=0.8")
        assert (status, headers["Content-Type"]) == (403, "text/html; charset=utf-8")
        assert b"open the address that `kubectl learnloop console` printed" in body
        status, _, body = browser.ask("GET", "/?token=%3Cscript%3E", Accept="text/html")
        assert status == 403
        assert b"<script>" not in body


FOREIGN = [
    {"Host": "evil.example"},
    {"Host": "evil.example:{port}"},
    {"Origin": "http://evil.example"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "null"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
    {"Cookie": None},
    {"Cookie": "learnloop-console-{port}=guess"},
]


@pytest.mark.parametrize("path", ["/", "/events", "/about", "/rights?namespace=ns", "/records/rewards?namespace=ns"])
@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_foreign_host_origin_or_page_or_no_cookie_is_refused_everywhere(pair, path, headers):
    sent = {name: value and value.replace("{port}", str(pair[1].port)) for name, value in headers.items()}
    status, answered, _ = pair[1].ask("GET", path, **sent)
    assert status == 403
    assert "Access-Control-Allow-Origin" not in answered


@pytest.mark.parametrize("headers", [*FOREIGN, {"Origin": None}, {"X_Learnloop_Key": None}, {"X_Learnloop_Key": "no"}])
def test_an_order_takes_the_key_beside_the_cookie(pair, cluster, headers):
    sent = {name: value and value.replace("{port}", str(pair[1].port)) for name, value in headers.items()}
    assert pair[1].ask("POST", "/orders", ORDER, **sent)[0] == 403
    assert cluster.annotated == []


def test_every_answer_forbids_what_a_page_could_be_made_to_load(pair: tuple[Console, Browser]) -> None:
    for path in ("/", "/app.js", "/nothing", "/about"):
        _, headers, _ = pair[1].ask("GET", path)
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert headers["X-Content-Type-Options"] == "nosniff"
    for path in ("/../server.py", "/%2e%2e/server.py", "/pages/app.js", "//etc/passwd"):
        assert pair[1].ask("GET", path)[0] == 404


def test_the_pages_fit_into_200_kilobytes_and_name_no_other_server() -> None:
    files = {path.name: path.read_bytes() for path in PAGES.iterdir()}
    assert {"index.html", "app.js", "console.css"} <= set(files)
    assert sum(map(len, files.values())) <= MOST_BYTES
    for name, file in files.items():
        text = file.decode().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in "".join(line for line in text.splitlines() if "http" in line), name
        assert "innerHTML" not in text, f"{name}: data would be read as markup"


def test_evidence_comes_with_the_intervals_of_the_operators_own_arithmetic() -> None:
    log = ChangeLog()
    log.put("modeldeployments", rollout(evidence=[{"name": "success", "judged": [100.0, 90.0, 0.0, 0.0]}]))
    objects = log.read(None, 0.0).snapshot or []
    mean, low, high, episodes = objects[0]["intervals"]["success"]["canary"]
    assert (mean, episodes) == (0.9, 100.0)
    assert 0.7 < low < 0.85 < 0.95 < high < 1.0
    assert "stable" not in objects[0]["intervals"]["success"], "nothing was compared"


def test_an_order_runs_the_verb_itself(pair: tuple[Console, Browser], cluster: WrittenCluster) -> None:
    for wrong, sentence in (
        ({"verb": "erase"}, "unknown verb 'erase'; the orders are approve"),
        ({"name": "--help"}, "invalid name '--help'"),
        ({"namespace": "../x"}, "invalid namespace '../x'"),
        ({"name": "other"}, "no ModelDeployment 'other'"),
    ):
        status, _, body = pair[1].ask("POST", "/orders", {**ORDER, **wrong})
        assert (status, sentence in json.loads(body)["error"]) == (400, True), body
    assert cluster.annotated == []
    status, _, body = pair[1].ask("POST", "/orders", ORDER)
    assert status == 200, body
    assert json.loads(body)["message"].startswith("3f9a2c81 holds at ")
    assert [where for where, _ in cluster.annotated] == ["modeldeployments/walker"]
    assert cluster.annotated[0][1].endswith(" by anna")


def test_an_order_is_about_the_models_that_its_question_showed(pair, cluster):
    canary, stable = {"revision": "3f9a2c81", "uri": "u"}, {"revision": "b41d07ee", "uri": "u"}
    cluster.objects["modeldeployments", "walker"] = rollout(canary=canary, stable=stable, step=1)
    models = {"canary": "3f9a2c81", "stable": "b41d07ee", "blocked": None, "step": 0}
    skip = {"verb": "skip"}
    for order, sentence in (
        ({"shown": {**models, "canary": "0bad0bad"}}, "canary was 0bad0bad when you were asked, and is 3f9a2c81 now"),
        ({"shown": {**models, "blocked": "x"}}, "blocked was x when you were asked, and is none now"),
        ({**skip, "shown": models}, "step was 0 when you were asked, and is 1 now"),
        ({"shown": "all"}, "what was shown as JSON"),
    ):
        status, _, body = pair[1].ask("POST", "/orders", {**ORDER, **order})
        assert (status, sentence in json.loads(body)["error"]) == (400, True), body
    assert cluster.annotated == []
    assert pair[1].ask("POST", "/orders", {**ORDER, "shown": models})[0] == 200, "a hold means the model at any step"


@pytest.mark.parametrize("judged", [[1e308, 1, 1e308, 1], ["a", 1, 2, 3], [3, 1, 3, None], "abcd", 5])
def test_figures_of_one_rollout_that_make_no_interval_leave_the_others(judged) -> None:
    log = ChangeLog()
    log.put("modeldeployments", rollout(evidence=[{"name": "returns", "judged": judged}, None, "x"]))
    assert [item["intervals"] for item in log.read(None, 0.0).snapshot or []] == [{}]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ("x", {}),
        ({"verb": "pause"}, {}),
        (ORDER, {"Content_Type": "text/plain"}),
        ({**ORDER, "name": "x" * MOST_BODY}, {}),
    ],
)
def test_a_malformed_order_is_refused_with_a_sentence(pair: tuple[Console, Browser], body, headers) -> None:
    status, _, answer = pair[1].ask("POST", "/orders", body, **headers)
    assert (status, len(json.loads(answer)["error"]) > 10) == (400, True)


@pytest.mark.parametrize("headers", [{"Host": None}, {"Content_Length": "many"}])
def test_a_request_that_is_not_valid_http_reaches_no_page(pair, cluster, headers):
    with suppress(ConnectionError):  # an answer may be lost when the server closes before it reads the body
        assert pair[1].ask("POST", "/orders", ORDER, **headers)[0] == 400
    assert pair[1].ask("GET", "/about", **headers)[0] == 400
    assert cluster.annotated == []


def test_a_console_ends_by_an_order_after_an_hour_without_a_page_and_after_half_a_day(pair):
    console = replace(pair[0], began=0.0, streamed=0.0)
    for now, console.streams, over in ((3599, 0, False), (7000, 1, False), (10_599, 0, False), (10_600, 0, True)):
        assert console.over(now) is over
    console.streams = 1
    assert [console.over(43_199.0), console.over(43_200.0)] == [False, True]
    assert (pair[1].ask("POST", "/end", {}, X_Learnloop_Key="no")[0], pair[0].ended) == (403, False)
    assert (pair[1].ask("POST", "/end", {})[0], pair[0].over(pair[0].began)) == (200, True)


def test_looking_at_a_recall_teaches_nothing(pair: tuple[Console, Browser], cluster: WrittenCluster) -> None:
    cluster.records = {"/api/v1/memory/retrieve": {"memories": []}}
    assert pair[1].ask("GET", "/records/recall?namespace=ns&agent=walker&context=stairs")[0] == 200
    assert cluster.requests[-1][3] == {"agent_id": "walker", "context": "stairs", "k": 10, "logged": False}
    status, _, answer = pair[1].ask("GET", "/records/run?namespace=ns&job=walker-1")
    assert (status, "nothing at /api/v1/training/runs/walker-1" in json.loads(answer)["error"]) == (400, True)


@pytest.mark.parametrize(
    ("listed", "namespace", "namespaces"),
    [
        (("modeldeployments",), "", None),
        ((), "", ("own",)),
        (("modeldeployments",), "c,c", ("c",)),
        ((), "a,b", ("a", "b")),
    ],
)
def test_a_user_sees_the_named_namespaces_or_the_cluster_or_the_own_one(listed, namespace, namespaces):
    cluster = WrittenCluster("own")
    cluster.patched = set(listed)
    server, opened, watch = open_console(cluster, DataPlaneAccess, namespace)
    server.stop()
    assert watch.namespaces == opened.scope["namespaces"] == namespaces


def test_rights_are_those_of_the_caller(pair: tuple[Console, Browser], cluster: WrittenCluster) -> None:
    allowed = json.loads(pair[1].ask("GET", "/rights?namespace=ns")[2])
    assert allowed.pop("train") is False
    assert set(allowed.values()) == {True}
