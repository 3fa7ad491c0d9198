"""Keys that the cluster withdrew are not believed forever where its API server is away."""

import pytest

from learnloop_common import token_verification
from learnloop_common.service_accounts import KeySource, KeysUnavailable
from learnloop_common.token_verification import MAX_STALE_SECONDS, KeySet


async def test_keys_that_cannot_be_fetched_again_hold_for_hours_and_no_longer(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(token_verification.time, "monotonic", lambda: now[0])
    keys = KeySet(KeySource("https://nowhere/keys", str(tmp_path / "token"), str(tmp_path / "ca")))

    async def away():
        raise OSError("the API server is away")

    monkeypatch.setattr(keys, "_fetch", away)
    monkeypatch.setattr(keys, "_keys", {"known": "a key"})
    monkeypatch.setattr(keys, "_fetched", now[0])
    now[0] += MAX_STALE_SECONDS - 1
    assert await keys.key("known") == "a key"
    now[0] += 2
    with pytest.raises(KeysUnavailable, match="key set"):
        await keys.key("known")
