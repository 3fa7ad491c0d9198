"""The passwords that are made or left alone; the API server's part is in tests/api/kinds/test_chart.py."""

import base64
from urllib.parse import quote

from hypothesis import given, strategies as st

from learnloop_dataplane.config import WrappingKeys, seed_from
from learnloop_operator.bootstrap import KEYS, LENGTH, completion

CONTENTS = st.none() | st.dictionaries(st.sampled_from([*KEYS, "other"]), st.sampled_from(["", "b2xk"]))


@given(CONTENTS)
def test_what_is_missing_is_added_and_what_is_there_never_changes(data: dict[str, str] | None) -> None:
    secret = {"metadata": {"resourceVersion": "7"}, **({} if data is None else {"data": data})}
    patch = completion(secret)
    missing = {key for key in KEYS if not (data or {}).get(key)}
    if not missing:
        assert patch is None
        return
    assert set(patch["data"]) == missing
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert completion({**secret, "data": {**(data or {}), **patch["data"]}}) is None


def test_passwords_are_long_different_and_need_no_escaping() -> None:
    patch = completion({"metadata": {"resourceVersion": "1"}})
    made = {name: base64.b64decode(value).decode() for name, value in patch["data"].items()}
    assert len(set(made.values())) == len(KEYS)
    assert len(seed_from(made.pop("nats-issuer-key"))) == 32, "a key the data plane can sign with"
    keys = WrappingKeys.parse(made.pop("encryption-keys"))
    assert keys.unwrap(keys.wrap(b"x", "y"), "k1", "y") == b"x"
    for password in made.values():
        assert len(password) == LENGTH
        assert password.isalpha()
        assert quote(password) == password
