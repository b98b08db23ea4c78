"""The ``mudkit`` command."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from mudkit import __version__
from mudkit.cli import chapters, jobs, reports, traces
from mudkit.errors import EnvironmentProblem, MudkitError

__all__ = ["app", "main"]

app = typer.Typer(
    help="What should reach a phone, when, and at what cost? Begin with: mudkit lab",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(traces.app, name="trace")
app.add_typer(jobs.app, name="pipeline")
app.command()(reports.report)
app.command()(reports.reproduce)
app.command()(chapters.judge)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(chapters.lab)

_INTERRUPTED = 130


@app.command("doctor")
def doctor(
    start: Annotated[
        bool, typer.Option("--start", help="Start Spark as well, and print how long it takes.")
    ] = False,
) -> None:
    """Check what is installed, and print the command that fixes what is missing.

    Example: mudkit doctor --start
    """
    from mudkit import doctor as checks

    results = checks.checks(start=start)
    checks.render(results)
    if any(check.ok is False for check in results):
        raise typer.Exit(1)


def _version(value: bool) -> None:
    """Print the version and end the command when the option is given."""
    if value:
        typer.echo(f"mudkit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; print an error of mudkit's without a traceback, and exit with status 1."""
    logging.getLogger().addFilter(_is_news)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is stopped in good order cleans up
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a letter that the terminal's encoding lacks is no error
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except MudkitError as error:
        kind = "this machine" if isinstance(error, EnvironmentProblem) else "error"
        _fail(f"mudkit: {kind}: {error}")
    except OSError as error:
        place = "standard output or a file of mudkit" if error.filename is None else error.filename
        _fail(f"mudkit: this machine: {error.strerror or error}\n  where:    {place}")
    except KeyboardInterrupt:
        _stopped()
    except SystemExit as ended:
        if ended.code != _INTERRUPTED:
            raise
        _stopped()  # typer took the KeyboardInterrupt


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a record is shown; tracebacks of interrupted work (Py4J) are not."""
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt))


def _fail(message: str) -> NoReturn:
    """Print the message as an error and exit with status 1."""
    print(message, file=sys.stderr)  # noqa: T201
    try:
        sys.stdout.flush()
    except OSError:  # what is left cannot be written, and Python would try again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(1) from None


def _stopped() -> NoReturn:
    """Exit with the status of an interrupt, without what libraries print at exit."""
    print("mudkit: stopped", file=sys.stderr)  # noqa: T201
    # What libraries say at exit of their own interrupted work helps nobody.
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    raise SystemExit(_INTERRUPTED) from None
