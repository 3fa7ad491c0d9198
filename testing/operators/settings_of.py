"""The operator's settings as its process reads them from these environment variables."""

import os
from collections.abc import Mapping
from unittest import mock

from learnloop_operator.settings import Settings


def settings_of(environment: Mapping[str, str]) -> Settings:
    with mock.patch.dict(os.environ, environment):
        return Settings.read()
