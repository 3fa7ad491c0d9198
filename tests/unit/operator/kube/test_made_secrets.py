from typing import Any

from learnloop_operator.reconcile.apply_plan import FORGET_SECONDS, MOST, MadeSecrets


def secret(name: str = "md-episodes", owner: str = "a") -> dict[str, Any]:
    return {"kind": "Secret", "metadata": {"namespace": "ns", "name": name, "ownerReferences": [{"uid": owner}]}}


def test_a_secret_that_was_made_is_not_made_again_for_a_minute() -> None:
    now = [0.0]
    made = MadeSecrets(clock=lambda: now[0])
    assert not made.lately(secret())
    made.note(secret())
    now[0] = FORGET_SECONDS - 1
    assert made.lately(secret())
    now[0] = FORGET_SECONDS
    assert not made.lately(secret())


def test_the_namesake_of_a_deleted_owner_needs_a_secret_of_its_own() -> None:
    made = MadeSecrets()
    made.note(secret(owner="a"))
    assert not made.lately(secret(owner="b"))


def test_what_is_remembered_is_bounded() -> None:
    made = MadeSecrets(clock=lambda: 0.0)
    for number in range(MOST + 1):
        made.note(secret(f"s{number}"))
    assert (made.lately(secret("s0")), made.lately(secret(f"s{MOST}"))) == (False, True)
