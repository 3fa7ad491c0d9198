"""The operator's environment variables."""

import pytest

from learnloop_common.settings import ConfigurationError
from testing.operators.settings_of import settings_of


def test_settings_name_the_variable_the_value_and_the_fix() -> None:
    assert settings_of({"LEARNLOOP_WATCH_NAMESPACE": "a, b"}).watch_namespaces == ("a", "b")
    with pytest.raises(ConfigurationError, match=r"LEARNLOOP_DATA_URL is 'ftp://x': it must start with http"):
        settings_of({"LEARNLOOP_DATA_URL": "ftp://x"})
    with pytest.raises(ConfigurationError, match="LEARNLOOP_WORKERS is '0'"):
        settings_of({"LEARNLOOP_WORKERS": "0"})


def test_headers_of_traces_are_read_and_never_shown() -> None:
    read = settings_of({"LEARNLOOP_TRACES_ENDPOINT": "http://c:4318/", "LEARNLOOP_TRACES_HEADERS": "a=hush"})
    assert (read.traces_endpoint, read.traces_headers) == ("http://c:4318", {"a": "hush"})
    assert "hush" not in repr(read)
    with pytest.raises(ConfigurationError, match="LEARNLOOP_TRACES_HEADERS: part 1 is not a pair"):
        settings_of({"LEARNLOOP_TRACES_HEADERS": "secret"})
