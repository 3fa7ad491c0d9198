import pytest

from learnloop_common.key_rotation import KeyLines
from learnloop_common.redaction.redactor import Redaction
from learnloop_dataplane import privacy
from learnloop_sdk.errors import LearnloopError
from learnloop_sdk.trajectory_encoding import default_redactor


def test_an_agent_makes_pseudonyms_by_the_key_that_is_in_use_as_the_data_plane_does(monkeypatch):
    lines, clock = KeyLines.parse(f"{'n' * 32} from=1000\n{'o' * 32}"), [999.0]
    monkeypatch.setattr("learnloop_common.key_rotation.time.time", lambda: clock[0])
    monkeypatch.setenv("LEARNLOOP_PSEUDONYM_KEY", "\n".join((f"{'n' * 32} from=1000", "o" * 32)))
    redactor, context = default_redactor(), {"a@b.example": "a@b.example"}
    for clock[0], key in ((999.0, b"o" * 32), (1000.0, b"n" * 32)):
        by_key = Redaction(key)
        assert redactor("write to a@b.example") == by_key("write to a@b.example")
        assert redactor.value(context) == by_key.value(context)
        privacy.use_keys(lines)
        assert privacy.redact(context) == by_key.value(context)
    privacy.use_keys(None)


def test_a_short_key_of_several_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEARNLOOP_PSEUDONYM_KEY", f"{'n' * 32}\nshort")
    with pytest.raises(LearnloopError, match="LEARNLOOP_PSEUDONYM_KEY: the key of the pseudonyms has 5 bytes"):
        default_redactor()
