"""The console in a real Chromium: every page draws, is accessible, follows changes, and steers after asking.

SHOTS=folder keeps a picture of every page.
"""

import os
from pathlib import Path

import pytest

from learnloop_operator.cli.console.server import MOST_STREAMS
from testing.browsers.chromium import findings

PAGES = {
    "overview": "",
    "agent": "demo/agents/walker",
    "runs": "demo/agents/walker/runs",
    "run": "demo/runs/walker-5",
    "proof": "demo/runs/walker-4",
    "rollout": "demo/rollouts/walker",
    "rewards": "demo/agents/walker/rewards",
    "episode": "demo/agents/walker/episodes/t-0003",
    "memories": "demo/agents/walker/memories",
    "decisions": "demo/decisions",
}
SHOWN = {
    "overview": ["canaries under way"],
    "agent": ["rolled back 0bad0bad", "2026-01-26"],
    "runs": ["487 [481, 492]", "walker-4"],
    "run": ["kl divergence"],
    "proof": ["100 % of actions agree on 4096 observations"],
    "rollout": ["about 61 more episodes are needed", "25 % of new episodes from now on"],
    "rewards": ["no-fall"],
    "episode": ["Step 0 of 0 to 39"],
    "memories": ["Stairs: shorten the step."],
    "decisions": ["rollout.decision"],
}
CUT = """() => [...document.querySelectorAll(".scroll")]
  .filter((item) => item.scrollWidth > item.clientWidth + 1).map((item) => item.getAttribute("aria-label"))"""
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_draws_without_a_complaint_and_axe_finds_nothing(look, scheme: str) -> None:
    looked = look(scheme)
    for name, path in PAGES.items():
        looked.go(path)
        for text in SHOWN[name]:
            looked.page.get_by_text(text).first.wait_for()
        _is_in_order(looked.page, f"{name}-{'canary' if scheme == 'light' else scheme}")
    assert looked.complaints == []


@pytest.mark.parametrize(("state", "shown", "untested"), [
    ("rest", "b41d07ee serves every episode", "No test runs now: they begin with the next canary."),
    ("rollback", "P(worse) > 0.9999", "No test runs now: they ended with the canary."),
])  # fmt: skip
def test_an_open_page_follows_to_a_state_without_a_canary(look, state: str, shown: str, untested: str) -> None:
    looked = look()
    looked.go(PAGES["rollout"])
    looked.page.get_by_text("about 61 more episodes are needed").first.wait_for()
    for plural, body in looked.loop.changes(state):
        looked.log.put(plural, body)
    looked.page.get_by_text(untested).wait_for()
    assert "always-valid" not in looked.page.inner_text("main"), "without a figure this has nothing to explain"
    for name in ("rollout", "agent", "overview"):
        looked.go(PAGES[name])
        looked.page.get_by_text(shown).first.wait_for()
        _is_in_order(looked.page, f"{name}-{state}")
    assert looked.complaints == []


def _is_in_order(page, name: str) -> None:
    assert page.locator("h1").count() == 1, name
    assert "[object" not in page.inner_text("main"), name
    assert findings(page) == [], name
    assert page.evaluate(CUT) == [], f"{name}: tables that a desktop's window cuts off"
    if (folder := os.environ.get("SHOTS")) and not name.endswith("-dark"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def test_a_recall_is_explained_by_its_signals_and_an_episode_is_walked_by_keys(look) -> None:
    looked = look()
    looked.go(PAGES["memories"])
    looked.page.wait_for_selector("#question")
    looked.page.fill("#question", "stairs ahead")
    looked.page.press("#question", "Enter")
    looked.page.get_by_text("Recalled, best first").first.wait_for()
    assert looked.page.input_value("#question") == "stairs ahead", "drawing again keeps what is typed"
    looked.go(PAGES["episode"])
    looked.page.focus("#step-on")
    looked.page.keyboard.press("Enter")
    looked.page.get_by_text("Step 1 of 0 to 39").wait_for()
    assert looked.page.evaluate("document.activeElement.id") == "step-on", "and the place of the keyboard"
    assert looked.complaints == []


def test_what_is_written_in_the_cluster_is_shown_as_text(look) -> None:
    looked = look()
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    looked.log.put("modeldeployments", looked.loop.rollout(verdict=f"{evil} `kubectl learnloop skip`"))
    looked.go(PAGES["rollout"])
    looked.page.get_by_text(evil).first.wait_for()
    assert looked.page.locator("p.verdict code").first.inner_text() == "kubectl learnloop skip"
    assert (looked.page.locator("main img").count(), looked.complaints) == (0, [])


def test_an_arms_line_ends_with_the_arm_and_the_next_model_begins_another(look) -> None:
    looked = look()
    looked.go(PAGES["rollout"])
    arms = [({"revision": "aaaaaaaa", "meanReturn": 2.0}, {"revision": "bbbbbbbb", "meanReturn": 1.0})] * 2
    arms += [(None, {"revision": "aaaaaaaa", "meanReturn": mean}) for mean in (2.0, 2.5)]
    for weight, (canary, stable) in enumerate(arms):
        looked.log.put("modeldeployments", looked.loop.rollout(canary=canary, stable=stable, weight=weight))
        looked.page.get_by_text(f"{weight} %").first.wait_for()
    looked.go(PAGES["rollout"])
    lines = looked.page.locator("svg[aria-label='Mean return of both arms'] path.line")
    canary, stable = (lines.nth(place).get_attribute("d") for place in (0, 1))
    assert stable.count("M") > canary.count("M") >= 1
    ends = [float(way.rpartition("L")[2].partition(",")[0]) for way in (canary, stable)]
    assert ends[0] < ends[1]


def test_an_address_that_is_cut_short_says_so_and_the_next_one_is_drawn(look) -> None:
    looked = look()
    looked.go("demo/agents/%E0%A4%A")
    looked.page.get_by_text("No agent of this name in demo").wait_for()
    looked.go(PAGES["run"])
    looked.page.get_by_text("A run of walker.").wait_for()
    assert looked.page.title() == "walker-5 · learnloop"
    assert looked.page.locator("#of a").inner_text() == "decisions in demo"
    assert looked.complaints == []


def test_an_order_is_asked_about_and_carried_out_by_the_verb(look) -> None:
    looked = look()
    looked.go(PAGES["rollout"])
    looked.page.wait_for_selector("#verb-pause")
    assert looked.page.locator("[id^=verb-]").all_inner_texts() == [
        "pause", "skip", "promote", "restart", "abort", "retry",
    ]  # fmt: skip
    looked.page.click("#verb-pause")
    dialog = looked.page.locator("dialog")
    assert "kubectl learnloop pause walker -n demo" in dialog.inner_text()
    assert findings(looked.page) == []
    dialog.get_by_text("Cancel").click()
    assert looked.cluster.annotated == []
    looked.page.click("#verb-pause")
    looked.page.keyboard.press("Enter")
    looked.page.get_by_text("b41d07ee holds at").wait_for()
    assert [where for where, _ in looked.cluster.annotated] == ["modeldeployments/walker"]
    looked.go(PAGES["agent"])
    looked.page.get_by_text("You may look here and not steer").wait_for()
    assert looked.page.locator("#verb-train").count() == 0, "the API server says no to it"
    rights = "import('/store.js').then(({ rights }) => rights('constructor'))"
    assert "pause" in looked.page.evaluate(rights), "a namespace may have the name of what every object has"


def test_an_order_about_a_model_that_is_gone_since_is_refused(look) -> None:
    looked = look()
    looked.go(PAGES["rollout"])
    looked.page.click("#verb-pause")
    newer = looked.loop.rollout(canary={"revision": "77aa77aa", "uri": "u"})
    looked.cluster.objects["modeldeployments", "walker"] = newer
    looked.log.put("modeldeployments", newer)
    looked.page.locator("main").get_by_text("77aa77aa").first.wait_for()
    looked.page.keyboard.press("Enter")
    refusal = "Refused: walker: canary was b41d07ee when you were asked, and is 77aa77aa now; look again"
    looked.page.get_by_text(refusal).wait_for()
    assert looked.cluster.annotated == []


def test_ten_tabs_leave_each_other_connections(look) -> None:
    """Chromium gives one server six connections over all tabs."""
    looked = look()
    tabs = [looked.page]
    for _ in range(9):
        tabs[-1].evaluate(HIDE, True)
        tabs[-1].wait_for_timeout(300)
        tabs.append(looked.page.context.new_page())
        tabs[-1].goto(f"{looked.root}/#/{PAGES['rollout']}")
        tabs[-1].get_by_text("about 61 more episodes are needed").first.wait_for(timeout=20_000)
    looked.log.put("modeldeployments", looked.loop.rollout(verdict="told while it was hidden"))
    tabs[-1].get_by_text("told while it was hidden").first.wait_for(timeout=20_000)
    for tab in (tabs[0], tabs[5]):
        tabs[-1].evaluate(HIDE, True)
        tab.evaluate(HIDE, False)
        tab.get_by_text("told while it was hidden").first.wait_for(timeout=20_000)
        tab.evaluate(HIDE, True)
    assert looked.complaints == []


def test_a_page_whose_stream_was_refused_tries_again(look) -> None:
    looked = look()
    looked.console.streams += MOST_STREAMS
    looked.page.reload()
    looked.page.get_by_text("lost; trying again").wait_for()
    looked.console.streams -= MOST_STREAMS
    looked.page.wait_for_selector("main table", timeout=20_000)
    assert looked.page.locator("#link").inner_text() == "live"


def test_a_page_says_that_the_cluster_does_not_answer_and_is_live_again_afterwards(look) -> None:
    looked, why = look(), ["the API server does not answer: timed out"]
    link = looked.page.locator("#link")
    link.get_by_text("live", exact=True).wait_for()
    looked.console.away = lambda: why[0]
    looked.log.wake()
    link.get_by_text("the cluster does not answer").wait_for()
    assert link.get_attribute("title") == why[0]
    assert link.get_attribute("class") == "lost"
    why[0] = ""
    looked.log.wake()
    link.get_by_text("live", exact=True).wait_for()
    assert looked.complaints == []


def test_a_tab_without_the_key_may_look_and_not_steer(look) -> None:
    looked = look()
    looked.page.evaluate("sessionStorage.clear()")
    looked.go(PAGES["rollout"])
    looked.page.get_by_text("This tab may look only").wait_for()
    assert looked.page.locator("[id^=verb-]").count() == 0


def test_a_console_that_is_ended_shows_nothing_of_what_it_read(look) -> None:
    looked = look()
    looked.page.click("#end")
    looked.page.get_by_role("heading", name="The console has ended.").wait_for()
    assert looked.console.ended
    assert "walker" not in looked.page.content()
    assert looked.page.evaluate("sessionStorage.getItem('key')") is None


def test_keys_find_filter_help_theme_and_the_way_back(look) -> None:
    looked = look()
    looked.page.keyboard.press("/")
    assert looked.page.evaluate("document.activeElement.id") == "filter"
    looked.page.keyboard.type("nothing of this name")
    looked.page.get_by_text("No agent in what you may read.").wait_for()
    looked.page.fill("#filter", "")
    looked.page.focus("#main")
    looked.page.keyboard.press("?")
    assert looked.page.locator("dialog[open] h2").inner_text() == "Keys"
    looked.page.keyboard.press("Escape")
    looked.page.keyboard.press("t")
    assert looked.page.get_attribute("html", "data-theme") == "dark"
    looked.go(PAGES["decisions"])
    looked.page.keyboard.press("u")
    looked.page.get_by_role("heading", name="All namespaces").wait_for()


def test_five_hundred_rollouts_are_drawn_and_a_change_is_seen(look) -> None:
    looked = look()
    for number in range(500):
        looked.log.put("modeldeployments", looked.loop.rollout(f"agent-{number:03d}"))
    looked.page.reload()
    looked.page.locator("main tbody tr").nth(500).wait_for()
    looked.log.put("modeldeployments", looked.loop.rollout(stepText="changed 50."))
    looked.page.get_by_text("changed 50.").first.wait_for()


OVERLAPS = """() => [...document.querySelectorAll("main svg.chart[role=img]")].flatMap((drawing) => {
  const labels = [...drawing.querySelectorAll("text")].map((item) => [item.textContent, item.getBoundingClientRect()]);
  return labels.flatMap(([text, one], index) => labels.slice(index + 1)
    .filter(([, other]) => one.left < other.right && other.left < one.right)
    .filter(([, other]) => one.top < other.bottom - 2 && other.top < one.bottom - 2)
    .map(([other]) => `${drawing.getAttribute("aria-label")}: ${text} over ${other}`));
})"""
SMALL = """[...document.querySelectorAll("main svg.chart text")]
  .some((item) => item.getBoundingClientRect().height < 10)"""


def test_labels_of_charts_are_legible_on_a_narrow_screen(look) -> None:
    looked = look()
    looked.page.set_viewport_size({"width": 390, "height": 844})
    for name in ("agent", "runs", "run", "rollout", "episode"):
        looked.go(PAGES[name])
        for text in SHOWN[name]:
            looked.page.get_by_text(text).first.wait_for()
        assert looked.page.evaluate(OVERLAPS) == [], name
        assert not looked.page.evaluate(SMALL), name
        assert findings(looked.page) == [], name


PAUSED = {"phase": "Paused", "verdict": "waiting for approval at 25 %"}
UNDONE = {"verb": "undo", "by": "berta@example.org", "at": "2026-01-31T12:00:00Z", "outcome": "obeyed"}


@pytest.mark.parametrize(("changes", "clicks", "shown"), [
    ({"verdict": "RolledBack at 25 %: success 0.71 vs 0.93"}, ["text=walker >> nth=1"], "success 0.71 vs 0.93"),
    ({}, ["td a:text('walker')", "nav >> text=Runs"], "after 96,000 steps"),
    (PAUSED, ["table:has(caption:text('Rollouts')) a", "#verb-approve", "#confirm"], "b41d07ee"),
    ({"decisions": [UNDONE | {"message": "back to 3f9a2c81"}]}, ["a:text('demo')"], "berta@example.org"),
], ids=["why it rolled back", "compare two runs", "approve", "who undid what"])  # fmt: skip
def test_a_new_users_task_takes_three_clicks_at_most(look, changes: dict, clicks: list[str], shown: str) -> None:
    looked = look()
    body = looked.loop.rollout(**changes)
    looked.cluster.objects["modeldeployments", "walker"] = body
    looked.log.put("modeldeployments", body)
    looked.page.wait_for_timeout(500)
    for place in clicks:
        looked.page.click(place)
    looked.page.get_by_text(shown).first.wait_for()
    assert len(clicks) <= 3
