"""Status of an HTTPRoute, as its Gateway's controller reports it."""

from learnloop_operator.reconcile.model_deployment import route_problem


def test_a_route_of_which_a_part_was_left_out_is_not_in_force() -> None:
    partly = {
        "type": "PartiallyInvalid",
        "status": "True",
        "reason": "UnsupportedValue",
        "message": "Dropped rule(s): 1",
    }
    good = [{"type": name, "status": "True"} for name in ("Accepted", "ResolvedRefs")]
    route = {"status": {"parents": [{"conditions": [*good, partly]}]}}
    assert route_problem(route) == "a part of it was left out: UnsupportedValue: Dropped rule(s): 1"
    assert route_problem({"status": {"parents": [{"conditions": [*good, {**partly, "status": "False"}]}]}}) == ""
