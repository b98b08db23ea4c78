"""What is wrong with a stream's folder is told before Spark looks for it."""

import pytest

from mudkit.errors import InputMissing
from mudkit.pipeline import streaming


def test_a_folder_of_events_that_is_not_there(tmp_path):
    with pytest.raises(InputMissing, match="folder of events"):
        streaming.event_stream(None, tmp_path / "nofolder")
