"""Sessions of a Spark Connect server that runs elsewhere, here one that stores settings and files alone."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from types import SimpleNamespace

import grpc
import pytest
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

from mudkit import pipeline
from mudkit.errors import EnvironmentProblem, ParameterError
from mudkit.pipeline import _session
from mudkit.pipeline.executors import provide
from mudkit.pipeline.launch import connect
from mudkit.pipeline.launch import jvm as jvms
from mudkit.pipeline.launch.java import Archive

STATIC = "spark.sql.warehouse.dir"


class Server(base_pb2_grpc.SparkConnectServiceServicer):
    def __init__(self):
        self.settings, self.files = {}, {}

    def AnalyzePlan(self, request, context):
        version = base_pb2.AnalyzePlanResponse.SparkVersion(version="4.0.0")
        return base_pb2.AnalyzePlanResponse(session_id=request.session_id, spark_version=version)

    def Config(self, request, context):
        for pair in request.operation.set.pairs:
            if pair.key == STATIC:
                context.abort(grpc.StatusCode.INTERNAL, f"Cannot modify the static setting {pair.key}.")
            self.settings[pair.key] = pair.value
        return base_pb2.ConfigResponse(session_id=request.session_id)

    def AddArtifacts(self, requests, context):
        response = base_pb2.AddArtifactsResponse()
        for request in requests:
            response.session_id = request.session_id
            for artifact in request.batch.artifacts:
                self.files[artifact.name] = artifact.data.data
            if request.HasField("begin_chunk"):
                name = request.begin_chunk.name
                self.files[name] = request.begin_chunk.initial_chunk.data
            elif request.HasField("chunk"):
                self.files[name] += request.chunk.data
        return response

    def ReleaseSession(self, request, context):
        return base_pb2.ReleaseSessionResponse(session_id=request.session_id)


@pytest.fixture
def server(monkeypatch, tmp_path):
    """Return a server, in a process without a session and with an empty folder for temporary files."""
    monkeypatch.setattr(_session, "_PROCESS", _session._Process())
    monkeypatch.setattr(_session, "_adopt_session", lambda: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(connect, "ANSWER_S", 1.0)
    server = Server()
    runner = grpc.server(ThreadPoolExecutor(2))
    base_pb2_grpc.add_SparkConnectServiceServicer_to_server(server, runner)
    server.url = f"sc://localhost:{runner.add_insecure_port('localhost:0')}"
    server.stop = lambda: runner.stop(0).wait()
    runner.start()
    yield server
    pipeline.stop()
    server.stop()
    assert list(tmp_path.iterdir()) == []
    assert not {"SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE"} & {*os.environ}


def test_session_of_a_server_has_mudkit_and_the_settings_of_the_caller(server):
    """Check what the docstring of `pipeline.session` promises."""
    settings = {"spark.sql.shuffle.partitions": 7, "spark.sql.session.timeZone": "CET"}
    spark = pipeline.session(remote=server.url, config=settings)
    assert server.settings == {
        "spark.sql.shuffle.partitions": "7",
        "spark.sql.session.timeZone": "CET",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.parser.manageParserCaches": "true",
        "spark.sql.parser.parserDfaCacheFlushThreshold": "50000",
        "spark.sql.connect.serverStacktrace.enabled": "false",
    }
    ((name, content),) = server.files.items()
    assert name == "pyfiles/mudkit.zip"
    assert "mudkit/__init__.py" in zipfile.ZipFile(BytesIO(content)).namelist()
    server.files.clear()
    provide(spark)
    assert server.files == {}, "what has been sent is sent once"
    assert pipeline.session() is pipeline.session(remote=server.url, config=settings) is spark
    with pytest.raises(ParameterError, match="Another Spark session"):
        pipeline.session(config={"spark.sql.shuffle.partitions": 8})
    pipeline.stop()
    assert spark.is_stopped
    assert pipeline.session(remote=server.url) is not spark, "one that was stopped is replaced"


def test_server_that_is_gone_is_reported_and_another_session_can_follow(server):
    spark = pipeline.session(remote=server.url)
    server.stop()
    with pytest.raises(EnvironmentProblem, match="does not answer") as error:
        pipeline.session(remote=server.url)
    assert server.url in str(error.value)
    assert spark.client.is_closed


def test_setting_that_a_running_server_does_not_take_is_refused(server):
    with pytest.raises(ParameterError, match=f"(?s)not take this setting.*{STATIC}"):
        pipeline.session(remote=server.url, config={STATIC: "elsewhere"})
    assert not _session.running()


def test_start_that_fails_leaves_pyspark_as_it_was(server, monkeypatch, tmp_path):
    """Start a server in this process, and fail when its JVM runs and mudkit is sent to it."""
    server.stop()
    ended = []
    (tmp_path / "jvm").mkdir()
    monkeypatch.setattr(jvms, "running_process", lambda: None)
    monkeypatch.setattr(jvms, "register_process", lambda jvm: None)
    monkeypatch.setattr(jvms, "jvm_config", lambda *_: jvms.Jvm({}, {}, Archive(), tmp_path / "jvm"))
    monkeypatch.setattr(jvms, "end", lambda jvm: ended.append(shutil.rmtree(jvm.folder)))

    class Session:
        client = SimpleNamespace(set_retry_policies=lambda policies: None)

        def addArtifacts(self, *_, pyfile):
            assert {"SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE"} <= {*os.environ}
            raise OSError("full")

    monkeypatch.setattr(connect, "start", lambda *_: Session())
    with pytest.raises(EnvironmentProblem, match="full"):
        pipeline.session(remote="local[2]")
    assert len(ended) == 1
    assert not _session.running()
