"""One Spark session for all tests of this folder."""

import pytest

from mudkit import pipeline


@pytest.fixture(scope="session")
def spark():
    yield pipeline.session()
    pipeline.stop()
