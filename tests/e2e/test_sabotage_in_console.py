"""The console beside a real loop: a rollout and its rollback are followed in a browser, on one page that stays open.

SHOTS=folder keeps pictures, e.g. `SHOTS=docs make e2e`.
"""

import pytest

from testing.real_cluster.followed_sabotage import PHASES, FollowedSabotage


def test_a_rollout_and_its_roll_back_were_told_to_a_page_that_stayed_open(sabotage: FollowedSabotage) -> None:
    if sabotage.without_browser:
        pytest.skip(sabotage.without_browser)
    assert sabotage.seen == list(PHASES)
    assert sabotage.back.sentence[:40] in sabotage.last
    assert sabotage.complaints == []
