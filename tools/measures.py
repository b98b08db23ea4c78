"""Write the table of measures in docs/guides/reports.md: those of the sample of each report."""

from __future__ import annotations

import sys
from pathlib import Path

from mudkit.report import read_summary, run_report
from mudkit.report.parameters import preset
from mudkit.report.schemas import TEMPLATES

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "reports.md"
MARK = "<!-- measures -->"


def main() -> None:
    """Run the samples that have changed, and replace the table between the marks."""
    lines = ["| report | name | unit | what it is |", "|---|---|---|---|"]
    for template in TEMPLATES:
        summary = read_summary(run_report(template, preset(template, "sample")))
        for measure in summary.measures.values():
            definition = measure.definition.replace("|", "\\|")
            lines.append(f"| `{template}` | `{measure.name}` | {measure.unit} | {definition} |")
    head, _, tail = GUIDE.read_text(encoding="utf-8").split(MARK)
    GUIDE.write_text(MARK.join([head, "\n{}\n".format("\n".join(lines)), tail]), encoding="utf-8")
    sys.stdout.write(f"{len(lines) - 2} measures: {GUIDE}\n")


if __name__ == "__main__":
    main()
