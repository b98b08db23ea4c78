"""Where mudkit keeps what it can make again: a folder of the user's, or a temporary one."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

__all__ = ["cache_folder", "temporary_cache", "usable", "user_cache"]


def user_cache() -> Path | None:
    """Return the folder that mudkit's cache belongs in, whether it exists or not.

    ``XDG_CACHE_HOME`` counts on every platform (as an absolute path, as its specification says).

    Returns
    -------
    Path or None
        None when this user has no home folder.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    if Path(named).is_absolute():
        return Path(named) / "mudkit"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    platform: str = sys.platform  # widened: mypy would call the branches of other platforms unreachable
    if platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "mudkit" / "Cache"
    return home / ("Library/Caches" if platform == "darwin" else ".cache") / "mudkit"


def usable(folder: Path) -> bool:
    """Make the folder if need be, and say whether files can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def temporary_cache() -> Path:
    """Return a folder among the temporary files that only this user can write to.

    Scripts are run from it, so a folder of that name that somebody else made is not taken.
    """
    uid = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"mudkit-{uid}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        private = os.name == "nt" or (status.st_uid == uid and not status.st_mode & 0o022)
        if stat.S_ISDIR(status.st_mode) and private and usable(folder):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="mudkit-"))


def cache_folder(name: str) -> Path:
    """Return a folder of the cache that exists and can be written to.

    Parameters
    ----------
    name : str
        What is kept there, for instance ``"java"``.
    """
    home = user_cache()
    if home is not None and usable(home / name):
        return home / name
    folder = temporary_cache() / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
