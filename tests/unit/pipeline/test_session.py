"""The one session of the process, as far as it needs no Java."""

from types import SimpleNamespace

from pyspark.logger import PySparkLogger

from mudkit.pipeline import _session, stop


def test_running_session_is_ended_once(monkeypatch):
    ended = []
    monkeypatch.setattr(_session, "_PROCESS", _session._Process())
    monkeypatch.setattr(_session, "_end", ended.append)
    stop()
    assert ended == [], "there was none"
    _session._PROCESS.running = "the session"
    stop()
    stop()
    assert ended == ["the session"]


def test_session_beside_a_foreign_one_prints_no_analysis_error_as_json(monkeypatch):
    """Each error is an exception; Spark's loggers would print it once more, in a session of others, too."""
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("DataFrame", "SQL")]
    for logger in loggers:
        monkeypatch.setattr(logger, "disabled", False)
    new = SimpleNamespace(conf=SimpleNamespace(set=lambda key, value: None))
    foreign = SimpleNamespace(client=SimpleNamespace(host="somewhere"), newSession=lambda: new)
    monkeypatch.setattr(_session.connect, "active_session", lambda: foreign)
    monkeypatch.setattr(_session, "_is_alive", lambda running: True)
    assert _session._adopt_session().spark is new
    assert [logger.disabled for logger in loggers] == [True, True]
