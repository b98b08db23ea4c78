"""What fronts are given: a lab, and a device of it."""

from __future__ import annotations

from typing import Any

from mudkit.errors import ParameterError

__all__ = ["check_device", "check_lab"]


def check_lab(given: Any) -> None:
    """Refuse what is no lab: whatever has servers is one.

    Raises
    ------
    ParameterError
    """
    if not hasattr(given, "server"):
        raise ParameterError(
            "This is no lab.", where="lab", found=_shown(given), expected="a lab, such as Lab(seed=7)"
        )


def check_device(given: Any) -> None:
    """Refuse what is no device: whatever machines can be installed on is one.

    Raises
    ------
    ParameterError
    """
    if not hasattr(given, "install"):
        raise ParameterError(
            "This is no device.", where="device", found=_shown(given),
            expected="a device of the lab", remedy="give lab.device(name), or lab.devices[name]",
        )  # fmt: skip


def _shown(given: Any) -> str:
    return repr(given)[:120] if isinstance(given, str | int | float) else f"a {type(given).__name__}"
