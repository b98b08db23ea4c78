"""Settings of a Spark session from arguments and the environment, and whether its cluster is reachable."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mudkit.errors import EnvironmentProblem, ParameterError

DEFAULT_MASTER = "local[*]"
MASTER_VARIABLE = "MUDKIT_SPARK_MASTER"
REMOTE_VARIABLE = "SPARK_REMOTE"
MEMORY_VARIABLE = "MUDKIT_SPARK_MEMORY"
_SHELL = "pyspark-shell"
"""Word with which the options of a Python program end."""
_MIN_MIB = 512  # Spark itself refuses less than 450 MiB

_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(, *[1-9]\d*)?\])?")
_LOOPBACK = re.compile(r"spark://(127\.\d+\.\d+\.\d+|localhost):\d+")
_MASTERS = ("spark://", "yarn", "k8s://", "local-cluster[")


@dataclass(frozen=True)
class Target:
    """Master or server of a session, and its configuration.

    `url` is a master, or with `connect` the address of a Connect server, or ``local[...]`` for a Connect
    server that is started here. `named` is the argument, key or variable that named it, `explicit` whether
    this call did and not the environment. `config` is the caller's, without master and remote.
    """

    url: str = DEFAULT_MASTER
    connect: bool = False
    named: str = ""
    explicit: bool = False
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def local(self) -> bool:
        """True if everything runs in one JVM on this machine."""
        return _LOCAL.fullmatch(self.url) is not None

    @property
    def loopback(self) -> bool:
        """True if Spark and its executors run on this machine and only it needs to reach them."""
        return self.local or _LOOPBACK.fullmatch(self.url) is not None

    @property
    def starts_jvm(self) -> bool:
        """True if a JVM is started here; a Connect server elsewhere needs none."""
        return not self.url.startswith("sc://")

    @property
    def place(self) -> str:
        """Description for messages."""
        return f"Spark Connect at {self.url}" if self.connect else f"master {self.url}"


def resolve(
    master: str | None,
    remote: str | None,
    config: Mapping[str, object] | None,
    environ: Mapping[str, str],
) -> Target:
    """Determine where Spark runs from arguments, then the configuration, then the environment.

    Of the environment ``MUDKIT_SPARK_MASTER`` comes before ``SPARK_REMOTE``.
    """
    settings = _texts(config or {})
    arguments = {
        "master=": (master, False),
        "remote=": (remote, True),
        "config['spark.master']": (settings.pop("spark.master", None), False),
        "config['spark.remote']": (settings.pop("spark.remote", None), True),
    }
    named = {name: (url, connect) for name, (url, connect) in arguments.items() if url is not None}
    if len(set(named.values())) > 1:
        raise ParameterError(
            "A session runs in one place.",
            where=" and ".join(named),
            found=" and ".join(f"{name} {url!r}" for name, (url, _) in named.items()),
            expected="one of master= and remote=, or neither",
            remedy="leave out all but one",
        )
    explicit = bool(named)
    if not named:
        for name, connect in ((MASTER_VARIABLE, False), (REMOTE_VARIABLE, True)):
            if environ.get(name, "").strip():
                named = {name: (environ[name].strip(), connect)}
                break
    for name, (url, connect) in named.items():
        _check_url(name, url, connect)
        return Target(url, connect, name, explicit, settings)
    return Target(config=settings)


def _texts(config: Mapping[Any, object]) -> dict[str, str]:
    """Return the configuration with values as Spark writes them.

    ParameterError for a key or value that is none.
    """
    texts: dict[str, str] = {}
    for key, value in config.items():
        if not isinstance(key, str) or not key.startswith("spark."):
            raise ParameterError(
                "This is no key of Spark's configuration.",
                where="config",
                found=repr(key),
                expected="a key that begins with 'spark.'",
            )
        if isinstance(value, bool):
            texts[key] = str(value).lower()
        elif isinstance(value, str | int | float):
            texts[key] = str(value)
        else:
            raise ParameterError(
                "This is no value for Spark's configuration.",
                where=f"config[{key!r}]",
                found=repr(value),
                expected="a text, a number or a truth value",
            )
    return texts


def _check_url(name: str, url: object, connect: bool) -> None:
    """Raise ParameterError unless an argument is a master, or with ``connect`` a Spark Connect address."""
    if isinstance(url, str) and url:
        if _LOCAL.fullmatch(url) or url.startswith("sc://" if connect else _MASTERS):
            return
        if url.startswith("sc://"):
            raise ParameterError(
                "This is the address of a Spark Connect server, not a master.",
                where=name,
                found=url,
                remedy=f"session(remote={url!r}), or SPARK_REMOTE in the environment",
            )
    expected = "sc://host:port, or local[*] to start a Connect server here"
    if not connect:
        expected = "local[*], local[2], spark://host:7077, yarn or k8s://..."
    raise ParameterError("Spark cannot run there.", where=name, found=repr(url), expected=expected)


def memory(environ: Mapping[str, str]) -> str:
    """Return the memory of Spark's JVM from ``MUDKIT_SPARK_MEMORY``, as Spark takes it: ``"1024m"``."""
    text = environ.get(MEMORY_VARIABLE, "").strip() or "1g"
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mgt])(?:i?b)?", text.lower())
    mib = float(match[1]) * {"m": 1, "g": 1 << 10, "t": 1 << 20}[match[2]] if match else 0.0
    if mib < _MIN_MIB:
        raise ParameterError(
            "Spark cannot start with this much memory." if match else "This is no amount of memory.",
            where=MEMORY_VARIABLE,
            found=repr(text),
            expected=f"a number with a unit, {_MIN_MIB}m or more: 512m, 1g, 1.5g",
            remedy=f"export {MEMORY_VARIABLE}=1g",
        )
    return f"{int(mib)}m"


MASTER_TIMEOUT_S = 10.0
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):(?P<port>\d{1,5})")


def addresses(url: str) -> list[tuple[str, int]]:
    """Return host and port of each part of ``spark://host:port[,host:port]``; none when a part is invalid."""
    matches = [_ADDRESS.fullmatch(part.strip()) for part in url.removeprefix("spark://").split(",")]
    return (
        [(match["host"].strip("[]"), int(match["port"])) for match in matches if match]
        if all(matches)
        else []
    )


def check_reachable(target: Target) -> None:
    """Raise EnvironmentProblem if no master of a standalone cluster accepts a connection.

    Spark itself tries for a minute, without a message, and then stops its context in the middle of its start.
    """
    if not target.url.startswith("spark://"):
        return
    past_s = time.monotonic() + MASTER_TIMEOUT_S
    reasons = []
    places = addresses(target.url)
    for number, (host, port) in enumerate(places):
        patience_s = max(1.0, (past_s - time.monotonic()) / (len(places) - number))
        try:
            socket.create_connection((host, port), patience_s).close()
        except (OSError, OverflowError) as error:
            reasons.append(f"{host}:{port}: {getattr(error, 'strerror', None) or error}")
        else:
            return
    raise EnvironmentProblem(
        "There is no Spark cluster at this address.",
        where=target.named,
        found=f"{target.url}: {'; '.join(reasons) or 'no address of a master'}",
        expected=f"a master that takes a connection within {MASTER_TIMEOUT_S:g} s",
        remedy="start it (Spark's `sbin/start-master.sh` and `start-worker.sh`), or correct the address "
        "(spark://host:7077), or leave it out to run Spark on this machine",
    )


def check_variables(environ: Mapping[str, str]) -> None:
    """Raise EnvironmentProblem if a variable of another installation would keep Spark from starting."""
    if "SPARK_HOME" in environ:
        _check_spark_home(environ["SPARK_HOME"])
    words = environ.get("PYSPARK_SUBMIT_ARGS", _SHELL)
    try:
        is_complete = shlex.split(words)[-1:] == [_SHELL]
    except ValueError:  # a quotation without end
        is_complete = False
    if not is_complete:
        raise EnvironmentProblem(
            "PYSPARK_SUBMIT_ARGS keeps Spark from starting.",
            where="PYSPARK_SUBMIT_ARGS",
            found=f"PYSPARK_SUBMIT_ARGS={words!r}",
            expected=f"options, and {_SHELL} as the last word",
            remedy=f"unset PYSPARK_SUBMIT_ARGS, or append {_SHELL}",
        )


def _check_spark_home(name: str) -> None:
    """Raise EnvironmentProblem unless a folder has a Spark of PySpark's version."""
    home = Path(name)
    version = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    jars = sorted(home.glob("jars/spark-core_*.jar"))
    versions = {jar.stem.rpartition("-")[2] for jar in jars if "-" in jar.stem}
    if not name or not home.is_dir():
        problem = "no such folder"
    elif not (home / "bin" / "spark-submit").is_file():
        problem = "it has no bin/spark-submit"
    elif versions and not any(other.startswith(f"{version}.") for other in versions):
        problem = f"it is Spark {', '.join(sorted(versions))}"
    else:
        return
    raise EnvironmentProblem(
        "SPARK_HOME names no Spark that mudkit can start.",
        where="SPARK_HOME",
        found=f"SPARK_HOME={name}: {problem}",
        expected=f"Spark {version}, the version of PySpark here",
        remedy="unset SPARK_HOME to use the Spark that comes with PySpark",
    )
