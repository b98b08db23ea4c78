"""The command and environment with which ``mudkit lab`` starts JupyterLab; it contacts no other machine.

The module is also a server extension: it replaces the log of JupyterLab's start by one line.
"""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mudkit.errors import EnvironmentProblem, ParameterError, did_you_mean

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp
    from traitlets import TraitType

CHAPTER: Final = "00_start_here.ipynb"

_DEFAULTS: Final = {
    "Application.log_level": "ERROR",
    "ServerApp.ip": "127.0.0.1",
    "KernelManager.transport_encryption": "auto",
    "LabApp.custom_css": "True",
    "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    "LabApp.news_url": "None",
    "LabApp.extension_manager": "readonly",
}
"""Log errors only, listen on this machine only, encrypt what is said with kernels, which warn otherwise.

No check for updates, no news, no extension manager.
"""
_ALIASES: Final = {
    "ip": "ServerApp.ip",
    "sock": "ServerApp.sock",
    "notebook-dir": "ServerApp.root_dir",
    "browser": "ServerApp.browser",
    "log-level": "Application.log_level",
    "debug": "Application.log_level",
}
_HAS_OWN_TOKEN: Final = "mudkit_has_own_token"
_OWN: Final = ("--student", "--source", "--help")
_JUPYTER: Final = Path(__file__).parent.parent / "data" / "jupyter"
"""Defaults of JupyterLab's settings, which a user's own settings override, and an extension of JupyterLab."""


def command(folder: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command that opens the first chapter of a folder; ``arguments`` replace the defaults."""
    given = _options(arguments)  # JupyterLab refuses duplicate options
    options = _DEFAULTS | {"ServerApp.root_dir": str(folder.resolve())}
    if "ServerApp.root_dir" not in given:
        options["LabApp.default_url"] = f"/lab/tree/{CHAPTER}"
    flags = {"allow-root": _is_local_root(arguments), "no-browser": not _has_browser(given)}
    return [
        *(sys.executable, "-m", "jupyterlab"),
        *(f"--{name}={value}" for name, value in options.items() if name not in given),
        *(f"--{name}" for name, is_needed in flags.items() if is_needed and name not in given),
        *arguments,
    ]


def _has_browser(given: set[str]) -> bool:
    """Return whether an option names a browser or this machine has one; JupyterLab warns without one."""
    if "ServerApp.browser" in given:
        return True
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _link_jupyter_server_extension(app: ServerApp) -> None:
    """Add the folder of mudkit's styles, after that of the user's own."""
    app.static_custom_path = [*app.static_custom_path, str(_JUPYTER / "custom")]


def _load_jupyter_server_extension(app: ServerApp) -> None:
    """Suppress JupyterLab's own lines about the address, which it prints for a token that it has drawn."""
    provider = app.identity_provider
    app.web_app.settings[_HAS_OWN_TOKEN] = bool(provider.token) and provider.token_generated
    provider.token_generated = False


async def _start_jupyter_server_extension(app: ServerApp) -> None:
    """Print the address and what to do; the server answers now."""
    app.identity_provider.token_generated = app.web_app.settings[_HAS_OWN_TOKEN]  # the address then has it
    address = app.connect_url.split()[0]
    first = "it opens in your browser" if app.open_browser else "open it in a browser"
    line = f"mudkit: JupyterLab is at {address} ({first}; Shift-Enter runs a cell; Ctrl-C twice stops it)"
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def environment() -> dict[str, str]:
    """Return the environment of JupyterLab: this one, with mudkit's settings and extension.

    The settings answer the question about news; the extension gives texts of figures the theme's colour.
    """
    names = ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH")
    paths = {name: [str(_JUPYTER), *filter(None, [os.environ.get(name)])] for name in names}
    return os.environ | {name: os.pathsep.join(folders) for name, folders in paths.items()}


def _is_local_root(arguments: Sequence[str]) -> bool:
    """Return whether the user is root, as in a container, and JupyterLab listens at its default address.

    JupyterLab refuses to run as root without ``--allow-root``, which :func:`command` then adds. A root user
    who chooses another address has to give that option explicitly.
    """
    return os.geteuid() == 0 and _options(arguments).isdisjoint(("ServerApp.ip", "ServerApp.sock"))


def _options(arguments: Sequence[str]) -> set[str]:
    """Return the full names of the options among the arguments."""
    names = {
        argument.partition("=")[0].removeprefix("--") for argument in arguments if argument.startswith("--")
    }
    return {_ALIASES.get(name, name) for name in names}


def refuse_unknown(arguments: Sequence[str]) -> None:
    """Raise ParameterError for an unknown option or value; JupyterLab ignores all options if one is invalid.

    Raises EnvironmentProblem without JupyterLab.
    """
    options = [argument for argument in arguments if argument.startswith("-") and argument.strip("-")]
    if not options:
        return
    flags, aliases, traits = _known()
    known = [*_OWN, *(f"--{name}" for name in (*flags, *aliases, *traits))]
    for at, argument in enumerate(arguments):
        if argument not in options:
            continue
        option, has_value, value = argument.partition("=")
        name = option.removeprefix("--")
        if not option.startswith("--"):
            name = {"-y": "y", "-h": "help"}.get(option, "")
        if name in flags or name in ("help", "help-all", "version"):
            continue
        trait = traits.get(aliases.get(name, name))
        if trait is None:
            raise ParameterError(
                "JupyterLab has no such option.",
                where="mudkit lab",
                found=option,
                expected="an option of `mudkit lab` or of JupyterLab",
                remedy=did_you_mean(option, known, "`mudkit lab --help-all` lists them"),
            )
        if not has_value:
            value = arguments[at + 1] if at + 1 < len(arguments) else ""
        _refuse_value(option, trait, value)


def _refuse_value(option: str, trait: TraitType[Any, Any], value: str) -> None:
    """Raise ParameterError when JupyterLab cannot read the value; lists and mappings are not looked at."""
    from traitlets import Container, Dict, TraitError, Type
    from traitlets.utils.importstring import import_item

    if isinstance(trait, Container | Dict):  # may be given in parts, one an option
        return
    try:
        read = trait.from_string(value)
        if isinstance(trait, Type) and isinstance(read, str):
            import_item(read)
    except (TraitError, ValueError, ImportError) as error:
        raise ParameterError(
            "JupyterLab cannot read the value of an option.",
            where=option,
            found=repr(value),
            expected=trait.info(),
            remedy="`mudkit lab --help-all` tells what each option takes",
        ) from error


def _known() -> tuple[set[str], dict[str, str], dict[str, TraitType[Any, Any]]]:
    """Return JupyterLab's flags, its aliases with their traits, and the traits."""
    try:
        from jupyter_server.serverapp import ServerApp
        from jupyterlab.labapp import LabApp  # type: ignore[import-untyped]
    except ImportError as error:
        raise EnvironmentProblem(
            "JupyterLab cannot be loaded.", found=str(error), remedy="install mudkit again: make setup"
        ) from error
    from traitlets import Type

    apps = (LabApp(), ServerApp())
    makes = [kind for app in apps for kind in (type(app), *app.classes)]
    # Also the kinds that are named as a default only, such as IdentityProvider, which has the token.
    chosen = [
        trait.default_value for app in apps for trait in app.traits().values() if isinstance(trait, Type)
    ]
    kinds = {
        kind
        for chosen_type in (*makes, *chosen)
        if isinstance(chosen_type, type)
        for kind in chosen_type.mro()
    }
    traits = {
        f"{kind.__name__}.{name}": trait
        for kind in kinds
        if hasattr(kind, "class_traits")
        for name, trait in kind.class_traits(config=True).items()
    }
    flags = {name for app in apps for name in app.flags}
    aliases = {name: str(target) for app in apps for name, target in app.aliases.items()}
    return flags, aliases, traits
