"""The session that a column of a predicate belongs to."""

from mudkit.pipeline import tables


def test_session_without_a_frame_is_the_active_one_else_that_of_mudkit(monkeypatch):
    """A description of columns has no session: take the user's, and start one only if there is none."""
    monkeypatch.setattr(tables, "session", lambda: "that of mudkit")
    for active, expected in (("that of the user", "that of the user"), (None, "that of mudkit")):
        monkeypatch.setattr(tables.SparkSession, "getActiveSession", lambda active=active: active)
        assert tables._session(None) == expected
