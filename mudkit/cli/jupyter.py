"""The command and environment with which ``mudkit lab`` starts JupyterLab; it contacts no other machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mudkit.errors import EnvironmentProblem, ParameterError, did_you_mean

if TYPE_CHECKING:
    from traitlets import TraitType

__all__ = ["command", "environment", "is_local_root", "refuse_unknown"]

_DEFAULTS: Final = {
    "ServerApp.ip": "127.0.0.1",
    "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    "LabApp.news_url": "None",
    "LabApp.extension_manager": "readonly",
}
"""Listen on this machine only; no check for updates, news or extension manager."""
_ALIASES: Final = {"ip": "ServerApp.ip", "sock": "ServerApp.sock", "notebook-dir": "ServerApp.root_dir"}
_OWN: Final = ("--student", "--source", "--help")
_JUPYTER: Final = Path(__file__).parent.parent / "data" / "jupyter"
"""Defaults of JupyterLab's settings, which a user's own settings override, and an extension of JupyterLab."""


def command(folder: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command that opens JupyterLab on a folder; ``arguments`` replace the defaults."""
    given = _options(arguments)  # JupyterLab refuses duplicate options
    options = _DEFAULTS | {"ServerApp.root_dir": str(folder.resolve())}
    return [
        *(sys.executable, "-m", "jupyterlab"),
        *(f"--{name}={value}" for name, value in options.items() if name not in given),
        *(["--allow-root"] if is_local_root(arguments) and "allow-root" not in given else []),
        *arguments,
    ]


def environment() -> dict[str, str]:
    """Return the environment of JupyterLab: this one, with mudkit's settings and extension.

    The settings answer the question about news; the extension gives texts of figures the theme's colour.
    """
    names = ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH")
    paths = {name: [str(_JUPYTER), *filter(None, [os.environ.get(name)])] for name in names}
    return os.environ | {name: os.pathsep.join(folders) for name, folders in paths.items()}


def is_local_root(arguments: Sequence[str]) -> bool:
    """Check whether the user is root, as in a container, and JupyterLab listens at its default address.

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
    """Check the options of JupyterLab, which ignores all of them if one is invalid.

    Raises ParameterError for an unknown option or value, EnvironmentProblem without JupyterLab.
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
