"""The warehouse's URL."""

import os
from unittest.mock import patch

import pytest

from learnloop_common.settings import ConfigurationError
from learnloop_dataplane.config import Config, warehouse_connection

GOOD = {"LEARNLOOP_DSN": "postgresql://u:p@h/d", "LEARNLOOP_ARTIFACTS": "file:///data"}


def test_tls_is_an_argument_and_the_rest_stays_in_the_url() -> None:
    url = "clickhouse://me:p%40ss@one:9440/d"
    assert warehouse_connection(url) == {"dsn": url, "secure": "false"}
    assert warehouse_connection(f"{url}?secure=true&verify=false") == {"dsn": f"{url}?verify=false", "secure": "true"}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://u:secret@h/d", "write clickhouse://"),
        ("clickhouse://u:secret@h:99999/d", "is not an address"),
        ("clickhouse://u:secret@h:x/d", "is not an address"),
        ("clickhouse://u:secret@one,two:8123/d", "is not an address"),
        ("clickhouse://u:secret@/d", "is not an address"),
        ("clickhouse://u:secret@[h/d", "is not an address"),
        ("clickhouse://u:secret@h/d?host=elsewhere", "has unknown options host: use secure"),
    ],
)
def test_an_invalid_url_is_refused_by_name_and_keeps_the_password(url: str, expected: str) -> None:
    with patch.dict(os.environ, GOOD | {"LEARNLOOP_WAREHOUSE": url}), pytest.raises(ConfigurationError) as error:
        Config.read()
    assert expected in str(error.value)
    assert "LEARNLOOP_WAREHOUSE" in str(error.value)
    assert ":secret" not in str(error.value)
