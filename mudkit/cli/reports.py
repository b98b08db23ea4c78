"""``mudkit report`` and ``mudkit reproduce``: write results as pages and tables."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from mudkit import words
from mudkit.errors import ParameterError


def report(
    name: Annotated[
        str | None,
        typer.Argument(help="trace_profile, cache_policy, prefetch_sizing, propagation, scoreboard; or all."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param", "-p", help="KEY=VALUE, as often as needed; `mudkit report NAME --list` shows the keys."
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="A preset's name (`mudkit report NAME --list` shows them), or a YAML file with parameters."
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(help='Rows to keep: "hour(ts) < 9 AND lat > 37.7"; short for --param where=….'),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Compare with another run: KEY=VALUE (as often as needed), another trace, or the "
            "folder of a finished run."
        ),
    ] = None,
    fail_above: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE, as often as needed: exit status 1 if a measure of the two runs differs by more."
        ),
    ] = None,
    spark: Annotated[
        bool,
        typer.Option(
            "--spark",
            help="Compute on Spark whatever the size. Addresses, large traces and tables (--param "
            "trace=sales.cabs) always are.",
        ),
    ] = False,
    out: Annotated[Path, typer.Option("--out", help="Folder for reports.")] = Path("reports/build"),
    force: Annotated[bool, typer.Option("--force", help="Run even when nothing has changed.")] = False,
    as_list: Annotated[
        bool,
        typer.Option(
            "--list", help="List parameters and presets (of all reports without NAME) and run nothing."
        ),
    ] = False,
) -> None:
    """Run a report, and print its path and headline; an unchanged report is not run again.

    Beside the page, summary.json has its figures with units, intervals and definitions.

    Example: mudkit report trace_profile --param trace=cabs.csv --param columns.device=taxi

    With --against two runs are compared on a page of its own. Differences are this run minus the other.

    Example: mudkit report cache_policy --param trace=cabs.csv --against period=2008-05-18/2008-05-22

    Exit status: 0; 1 after an error, or if a measure differs by more than --fail-above; 130 if stopped.

    All reports, their parameters and presets: mudkit report --list
    """
    from mudkit.report import against as comparing
    from mudkit.report import compare_runs, headline, overview, parameters, run_report
    from mudkit.report.schemas import TEMPLATES

    limits = comparing.parse_limits(fail_above or [])
    if limits and not against:
        raise ParameterError(
            "There is nothing to compare with.",
            where="--fail-above",
            found=(fail_above or [""])[0],
            expected="--against, too",
            remedy="name another run: --against KEY=VALUE, a trace, or the folder of a finished run",
        )

    if as_list:
        for template in TEMPLATES if name in (None, "all") else [name]:
            _print_parameters(template)
        return
    if name is None:
        raise ParameterError(
            "Which report?",
            where="NAME",
            found="nothing",
            expected=", ".join([*TEMPLATES, "all"]),
            remedy="mudkit report --list shows what each takes",
        )
    if name == "all":
        if param or where or against or spark:
            raise ParameterError(
                "All reports have no parameter in common.",
                where="--param" if param else "--where" if where else "--against" if against else "--spark",
                found=[*(param or []), *filter(None, [where]), *(against or []), "--spark"][0],
                expected="--preset, or nothing",
                remedy="run the reports one by one",
            )
        typer.echo(f"{overview.run_all(named=preset or 'sample', build=out, force=force)}")
        return
    given = parameters.preset(name, preset) if preset else {}
    assigned = [*(param or []), *([] if where is None else [f"where={where}"])]
    given |= parameters.parse_assignments(name, assigned)
    if spark:
        with_spark = [one for one in TEMPLATES if any(row[0] == "spark" for row in parameters.described(one))]
        if name not in with_spark:
            raise ParameterError(
                "This report is computed on this machine alone.",
                where="--spark",
                found=f"mudkit report {name} --spark",
                expected=f"{words.joined(with_spark, 'or')} with --spark",
                remedy="leave --spark out",
            )
        given["spark"] = True
    if not against:
        path = run_report(name, given, build=out, force=force)
        typer.echo(f"{path / 'report.html'}  {headline(path)}".rstrip())
        return
    other = comparing.parse_against(name, given, against)
    paths = comparing.run_both(name, given, other, limits=limits, build=out, force=force)
    for path in paths:
        typer.echo(f"{path / 'report.html'}  {headline(path)}".rstrip())
    comparison = compare_runs(*paths, build=out)
    typer.echo(f"{comparison.folder / 'report.html'}  {comparison.headline}")
    for sentence in comparison.within_chance(limits):
        typer.echo(f"mudkit: within chance: {sentence}", err=True)
    above = comparison.above(limits)
    for sentence in above:
        typer.echo(f"mudkit: above the limit: {sentence}", err=True)
    if above:
        raise typer.Exit(1)


def reproduce(
    rows: Annotated[
        list[str] | None, typer.Argument(metavar="[ROW…]", help="Rows to measure now, for instance M1.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure the shortest rows, for at most three minutes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects instead of the table.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Keep the table as a page besides.")] = False,
    scorecard: Annotated[
        bool, typer.Option("--scorecard", help="Write docs/scorecard.md with the last result of every row.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", help="Folder for pages.")] = Path("reports/build"),
) -> None:
    """Measure the papers' numbers on this machine, and print both with a verdict.

    Named rows are measured. Without a name, all rows but those of speed are.
    Rows of speed then show their last result with its date.
    With --scorecard and no name, all rows without a result are measured.

    Example: mudkit reproduce M1 --json
    """
    import json

    from mudkit.reproduce import outcome, table

    selected = outcome.select(rows or (), quick=quick, missing=scorecard and not quick)
    if selected:
        typer.echo(table.expected(selected), err=True)
    shown = None if quick or rows else outcome.ROWS
    within_minutes = outcome.QUICK_MINUTES if quick else math.inf
    with table.show_steps() as say:
        measured = outcome.results(selected, rows=shown, within_minutes=within_minutes, say=say)
    if scorecard:
        from mudkit.reproduce.scorecard import write

        path = Path("docs/scorecard.md")
        write(outcome.results((), rows=outcome.ROWS), path)
        typer.echo(f"{path}", err=as_json)
    if as_json:
        typer.echo(json.dumps([result.as_json() for result in measured], indent=2))
    elif not scorecard:
        table.render(measured)
    if quick:
        typer.echo(table.left_out(measured, outcome.ROWS), err=True)
    if page:
        from mudkit.report import save_page
        from mudkit.reproduce.scorecard import notebook, quantities

        request = {"rows": [result.row.name for result in measured]}
        kept = save_page(
            "reproduce", notebook(measured), {"figures": quantities(measured)}, parameters=request, build=out
        )
        typer.echo(f"{kept / 'report.html'}", err=as_json)  # JSON alone is on standard output


def _print_parameters(report: str) -> None:
    """Print two tables of the report: its parameters and its presets."""
    from rich.console import Console
    from rich.table import Table as Grid

    from mudkit.report import parameters

    lines = Grid("parameter", "default", "meaning", title=f"mudkit report {report} --param PARAMETER=VALUE")
    for line in parameters.described(report):
        lines.add_row(*line)
    presets = Grid("preset", "meaning", title=f"mudkit report {report} --preset PRESET")
    for preset in parameters.presets(report).items():
        presets.add_row(*preset)
    for grid in (lines, presets):
        grid.title_justify, grid.box = "left", None
        Console().print(grid)
