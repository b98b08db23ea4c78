"""What Spark is asked to be: where it runs and how it is configured, from arguments and the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mudkit.errors import ParameterError

__all__ = ["DEFAULT_MASTER", "MEMORY_VARIABLE", "Wanted", "memory", "resolve"]

DEFAULT_MASTER = "local[*]"
MASTER_VARIABLE = "MUDKIT_SPARK_MASTER"
REMOTE_VARIABLE = "SPARK_REMOTE"
MEMORY_VARIABLE = "MUDKIT_SPARK_MEMORY"
_LEAST_MIB = 512  # Spark itself refuses less than 450 MiB

_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(, *[1-9]\d*)?\])?")
_LOOPBACK = re.compile(r"spark://(127\.\d+\.\d+\.\d+|localhost):\d+")
_MASTERS = ("spark://", "yarn", "k8s://", "local-cluster[")


@dataclass(frozen=True)
class Wanted:
    """Where a session is to run, and with which configuration.

    Parameters
    ----------
    url : str
        A master, or the address of a Spark Connect server, or ``local[...]`` for a Connect server that is
        started here.
    connect : bool
        Whether the session speaks Spark Connect.
    named : str
        Where the url was named: an argument, a key of the configuration, a variable; ``""`` by default.
    explicit : bool
        Whether this call named it, and not the environment.
    config : dict of str to str
        The caller's configuration, without master and remote.
    """

    url: str = DEFAULT_MASTER
    connect: bool = False
    named: str = ""
    explicit: bool = False
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def local(self) -> bool:
        """Whether everything runs in one JVM on this machine."""
        return _LOCAL.fullmatch(self.url) is not None

    @property
    def loopback(self) -> bool:
        """Whether Spark and its executors are on this machine, and nobody else need reach them."""
        return self.local or _LOOPBACK.fullmatch(self.url) is not None

    @property
    def starts_jvm(self) -> bool:
        """Whether a JVM is started here (a Connect server elsewhere needs none)."""
        return not self.url.startswith("sc://")

    @property
    def place(self) -> str:
        """What people read about it."""
        return f"Spark Connect at {self.url}" if self.connect else f"master {self.url}"


def resolve(
    master: str | None,
    remote: str | None,
    config: Mapping[str, object] | None,
    environ: Mapping[str, str],
) -> Wanted:
    """Settle where Spark runs: arguments, then the configuration, then the environment.

    Parameters
    ----------
    master, remote : str or None
        The addresses, of which at most one is given; see `mudkit.pipeline.session`.
    config : mapping or None
        Keys of Spark's configuration.
    environ : mapping
        The environment: ``MUDKIT_SPARK_MASTER`` comes before ``SPARK_REMOTE``.

    Raises
    ------
    ParameterError
        When two places are named at once, or a name cannot be one.
    """
    settings = _texts(config or {})
    arguments = {
        "master=": (master, False),
        "remote=": (remote, True),
        "config['spark.master']": (settings.pop("spark.master", None), False),
        "config['spark.remote']": (settings.pop("spark.remote", None), True),
    }
    asked = {name: (url, connect) for name, (url, connect) in arguments.items() if url is not None}
    if len(set(asked.values())) > 1:
        raise ParameterError(
            "A session runs in one place.",
            where=" and ".join(asked),
            found=" and ".join(f"{name} {url!r}" for name, (url, _) in asked.items()),
            expected="one of master= and remote=, or neither",
            remedy="leave out all but one",
        )
    explicit = bool(asked)
    if not asked:
        for name, connect in ((MASTER_VARIABLE, False), (REMOTE_VARIABLE, True)):
            if environ.get(name, "").strip():
                asked = {name: (environ[name].strip(), connect)}
                break
    for name, (url, connect) in asked.items():
        _check_url(name, url, connect)
        return Wanted(url, connect, name, explicit, settings)
    return Wanted(config=settings)


def _texts(config: Mapping[Any, object]) -> dict[str, str]:
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
    """Memory of Spark's JVM from ``MUDKIT_SPARK_MEMORY``, in the JVM's notation.

    Returns
    -------
    str
        The size as Spark takes it, for instance ``"1024m"``, which is also the default.

    Raises
    ------
    ParameterError
        When the variable holds no amount, or less than Spark starts with.
    """
    text = environ.get(MEMORY_VARIABLE, "").strip() or "1g"
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mgt])(?:i?b)?", text.lower())
    mib = float(match[1]) * {"m": 1, "g": 1 << 10, "t": 1 << 20}[match[2]] if match else 0.0
    if mib < _LEAST_MIB:
        raise ParameterError(
            "Spark cannot start with this much memory." if match else "This is no amount of memory.",
            where=MEMORY_VARIABLE,
            found=repr(text),
            expected=f"a number with a unit, {_LEAST_MIB}m or more: 512m, 1g, 1.5g",
            remedy=f"export {MEMORY_VARIABLE}=1g",
        )
    return f"{int(mib)}m"
