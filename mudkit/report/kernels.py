"""Start kernels for notebooks that run unattended: what they and their Java print goes to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_client.manager import AsyncKernelManager

__all__ = ["QUIET_KERNEL", "manager"]

QUIET_KERNEL = ["--IPKernelApp.log_level=40"]
"""Arguments for a kernel that writes errors only: it warns of ports that are on loopback and signed."""


def manager(path: Path) -> type[AsyncKernelManager]:
    """Return a class of kernel managers that redirects output outside of cells to a file.

    An interrupted kernel, and the Java that it has started, write pages about it to standard error.

    Parameters
    ----------
    path : Path
        The file that takes what the kernel prints; ``os.devnull`` will do.
    """
    from jupyter_client.manager import (
        AsyncKernelManager,  # loading it takes longer than loading all of mudkit
    )

    class Quiet(AsyncKernelManager):
        async def _async_launch_kernel(self, kernel_cmd: list[str], **options: Any) -> None:
            with path.open("ab") as file:
                await super()._async_launch_kernel(kernel_cmd, **options | {"stderr": file})

    return Quiet
