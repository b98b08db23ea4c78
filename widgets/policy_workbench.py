"""PolicyWorkbench: edit a subscriber's policy, or the costs of mistakes, and see the effect at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any, Final

import ipywidgets

from mudkit import figures
from mudkit.checks import check_arguments
from mudkit.display import Cell, Table
from mudkit.errors import MudkitError, ParameterError
from mudkit.systems.sublim import Explanation, Finding, Policy, Rule, Verdict, findings
from mudkit.systems.sublim._policy.policy import decision_table
from mudkit.widgets.cost_page import CostPage
from mudkit.widgets.panel import STALE, Figure, Panel, alert, guide, read_object
from mudkit.worlds import CacheBench

_CHARGER: Final = "charger"
_LEVELS: Final = (_CHARGER, *range(0, 101, 5))
_KBPS: Final = (20, 50, 100, 180, 250, 500, 1_000, 1_500, 5_000, 12_740, 40_000, "no limit")
_STEPS_S: Final = (1, 5, 10, 30, 60, 150, 300, 600)
_EXAMPLE: Final = '{"patient": 7}'
_STYLE: Final = (
    "<style>.mudkit-policy-workbench .mudkit-policy textarea, .mudkit-policy-workbench pre.mudkit-lines "
    "{font: 12px/18px monospace; white-space: pre; padding: 4px; margin: 0; overflow-y: hidden} "
    ".mudkit-policy-workbench pre.mudkit-lines {text-align: right; border: 1px solid transparent}</style>"
)
_EDITOR: Final = {"max_height": "20em", "overflow": "hidden auto", "align_items": "flex-start"}
_NOTE: Final = (
    "Rules are evaluated in order; the first that holds fires. Nothing is kept until you press "
    "<b>decide and keep</b>: then the variables change as the policy sets them, and time advances."
)


@check_arguments(types=False)
class PolicyWorkbench(Panel):
    """Edit rules, a message and a state; findings, the rule that fires and the output follow each key.

    Invalid rules show an error with its line, and the last valid policy stays in use. Everything works from
    the keyboard. A second page is for learnt cache policies: see
    :class:`~mudkit.widgets.cost_page.CostPage`.

    Parameters
    ----------
    policy : str
        A policy as YAML.
    messages : mapping of str to mapping
        Messages to choose from, by name; each is a row of the figure. None: no page for rules.
    trained : CacheBench, optional
        Trees whose costs can be changed. None: no page for costs.
    bandwidth_kbps, battery : float, optional
        Initial state; None: no limit, or on a charger.
    display_px : int
        Initial width of the display, in pixels.

    Attributes
    ----------
    text : ipywidgets.Textarea
    message : ipywidgets.Dropdown
    body : ipywidgets.Text
        The chosen message as JSON; a number in a field of bytes is its length.
    battery, bandwidth, step : ipywidgets.SelectionSlider
        Automatic variables; time since the previous message.
    display : ipywidgets.BoundedIntText
    variables : ipywidgets.Text
        Manual variables as JSON.
    keep, begin : ipywidgets.Button
        Decide and keep; start again with the policy's own variables.
    problem, findings, status, rules, sent : ipywidgets.HTML
        The error, if any; findings of the checker; the decision; evaluation of each rule; the message before
        and after.
    figure : Figure
    costs : CostPage
        The page of costs, with ``trained``; all others require messages.

    Raises
    ------
    ParameterError
        Neither messages nor trained trees are given.
    """

    def __init__(
        self,
        policy: str = "",
        messages: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        trained: CacheBench | None = None,
        battery: float | None = 50,
        bandwidth_kbps: float | None = None,
        display_px: int = 320,
    ) -> None:
        if not messages and trained is None:
            raise ParameterError(
                "There is no message.", where="messages", found="none", expected="at least one"
            )
        pages: dict[str, Any] = {}
        if messages:
            pages["rules"] = self._rules_page(policy, messages, battery, bandwidth_kbps, display_px)
        if trained is not None:
            self.costs = pages["costs"] = CostPage(trained)
        if len(pages) > 1:
            super().__init__([ipywidgets.Tab([*pages.values()], titles=[*pages])])
        else:
            super().__init__([*pages.values()])
        self.add_class("mudkit-policy-workbench")

    def _rules_page(
        self,
        policy: str,
        messages: Mapping[str, Mapping[str, Any]],
        battery: float | None,
        bandwidth_kbps: float | None,
        display_px: int,
    ) -> Any:
        """Build the page for a policy of rules."""
        self._messages = {name: dict(body) for name, body in messages.items()}
        self._policy: Policy | None = None
        self._now_s, self._is_changing = 0.0, False
        self._refused = ""
        first = next(iter(self._messages))
        self.text = ipywidgets.Textarea(value=policy, layout={"width": "100%", "height": "auto"})
        self.text.add_class("mudkit-policy")
        self._lines = guide("")
        self.message = ipywidgets.Dropdown(options=list(self._messages), value=first, description="message")
        self.body = _text("its fields", "JSON; a number in a field of bytes is its length")
        self.battery = _slider("battery, %", _LEVELS, _CHARGER if battery is None else battery)
        self.bandwidth = _slider(
            "link, kbit/s", _KBPS, "no limit" if bandwidth_kbps is None else bandwidth_kbps
        )
        self.display = ipywidgets.BoundedIntText(
            value=display_px, min=1, max=10_000, description="display, px"
        )
        self.variables = _text("variables", "the policy's own variables, JSON")
        self.step = _slider("after, s", _STEPS_S, 10)
        self.keep = ipywidgets.Button(
            description="decide and keep", tooltip="keep the variables and advance time"
        )
        self.begin = ipywidgets.Button(
            description="begin again", tooltip="with the policy's initial variables"
        )
        self.problem, self.findings, self.status, self.rules, self.sent = (
            ipywidgets.HTML() for _ in range(5)
        )
        self.figure: Any = None
        self._show_message()
        self._parse()
        if self.figure is None:
            nothing = decision_table(Policy("", [Rule()]), {}, {})
            self.figure = Figure(figures.rule_firing(nothing, [], title="", x="battery, %"))
        self.text.observe(lambda _: self._parse(), names="value")
        self.message.observe(lambda _: self._on_choose(), names="value")
        for control in (self.body, self.battery, self.bandwidth, self.display, self.variables, self.step):
            control.observe(lambda _: self._decide(), names="value")
        self.keep.on_click(lambda _: self._decide(keeps=True))
        self.begin.on_click(lambda _: self._begin())
        left = ipywidgets.VBox([self._lines], layout={"width": "3.2em", "flex": "0 0 auto"})
        return ipywidgets.VBox([
            guide(_STYLE + _NOTE), ipywidgets.HBox([left, self.text], layout=_EDITOR),
            self.problem, self.findings,
            ipywidgets.HBox([self.message, self.body]),
            ipywidgets.HBox([self.battery, self.bandwidth]), ipywidgets.HBox([self.display, self.step]),
            ipywidgets.HBox([self.variables, self.keep, self.begin]),
            self.status, self.figure, self.rules, self.sent,
        ])  # fmt: skip

    # -- controls

    def _parse(self) -> None:
        """Parse the rules, and show the result or the error; the last valid policy stays in use."""
        text = str(self.text.value)
        try:
            policy = Policy.from_yaml(text if "\n" in text else text + "\n")
        except MudkitError as error:
            self._number_lines({getattr(error, "line", None)})
            self._refused = alert(
                "This is not a valid policy; the result below is of the last valid one.", error
            )
            self.problem.value = self._refused
            return
        self.problem.value = self._refused = ""
        before = None if self._policy is None else self._policy.variables
        self._policy = policy
        if policy.variables != before:
            self._put(self.variables, policy.variables)
        self._decide()
        problems = findings(policy)  # last, because the check of many conditions takes long
        self._number_lines({problem.line for problem in problems})
        self.findings.value = _findings(problems, text.splitlines())

    def _show_message(self) -> None:
        """Show the chosen message; bytes are shown as their number."""
        shown = {
            name: len(value) if isinstance(value, bytes) else value
            for name, value in self._messages[self.message.value].items()
        }
        self._put(self.body, shown)

    def _on_choose(self) -> None:
        """Handle the choice of a message: show it and decide."""
        self._show_message()
        self._decide()

    def _put(self, control: Any, value: Mapping[str, Any]) -> None:
        """Set a control without deciding."""
        self._is_changing = True
        control.value = json.dumps(value)
        self._is_changing = False

    def _begin(self) -> None:
        """Reset time and variables to the policy's beginning, and decide."""
        self._now_s = 0.0
        if self._policy is not None:
            self._put(self.variables, self._policy.variables)
        self._decide()

    def _decide(self, keeps: bool = False) -> None:
        """Decide about the current message and show the result."""
        policy = self._policy
        if self._is_changing or policy is None:
            return
        try:
            body = self._read_body(policy)
            variables = read_object("variables", self.variables.value, _EXAMPLE)
        except MudkitError as error:
            self.problem.value = self._refused + alert(STALE, error)
            return
        self.problem.value = self._refused
        at_s = self._now_s + self.step.value
        arguments = body, variables, self._automatic(self.battery.value), at_s
        verdict, seen = policy.decide(*arguments), policy.explain(*arguments)
        self.status.value = _status(policy, Explanation(verdict, seen), at_s, keeps)
        self.rules.value = _rules(policy, Explanation(verdict, seen))
        self.sent.value = _sent(body, verdict)
        self._draw(policy, body, variables, at_s)
        if keeps:
            self._now_s = at_s
            self._put(self.variables, dict(verdict.variables))

    def _read_body(self, policy: Policy) -> dict[str, Any]:
        """Parse the message; a number in a field of bytes becomes bytes of the chosen message."""
        body = read_object("message", self.body.value, _EXAMPLE)
        chosen = self._messages[self.message.value]
        for name, value in body.items():
            is_bytes = policy.message.get(name) == "bytes" or isinstance(chosen.get(name), bytes)
            if is_bytes and isinstance(value, int) and not isinstance(value, bool):
                if not 0 <= value <= 100_000:
                    raise ParameterError(
                        "The number of bytes is out of range.",
                        where=name,
                        found=str(value),
                        expected="0 to 100000",
                    )
                original = chosen.get(name)
                samples = original if isinstance(original, bytes) and original else b"\x80"
                body[name] = (samples * (value // len(samples) + 1))[:value]
        return body

    def _automatic(self, battery: Any) -> dict[str, Any]:
        """Return the automatic variables that the controls show; those without a limit are missing."""
        variables = {
            "battery": battery,
            "bandwidth_kbps": self.bandwidth.value,
            "display_px": self.display.value,
        }
        return {name: value for name, value in variables.items() if not isinstance(value, str)}

    # -- display

    def _draw(self, policy: Policy, body: dict[str, Any], variables: dict[str, Any], at_s: float) -> None:
        """Draw which rule fires for each message and state of the battery."""
        rows = {**self._messages, self.message.value: body}
        states = {str(level): self._automatic(level) for _, level in self.battery.options}
        table = decision_table(policy, rows, states, variables, at_s)
        names = [rule.name for rule in policy.rules]
        link = self.bandwidth.value
        title = f"Which rule fires, {link if isinstance(link, str) else f'{link:,} kbit/s'}"
        now = (self.message.value, str(self.battery.value))
        if self.figure is None:  # complete from the start, because an empty figure is not shown
            figure = figures.rule_firing(table, names, title=title, x="battery, %")
            figures.update_rule_firing(figure, table, names, title=title, now=now)
            self.figure = Figure(figure)
            return
        figures.update_rule_firing(self.figure, table, names, title=title, now=now)

    def _number_lines(self, marked: set[int | None]) -> None:
        """Show the number of each line, and mark lines with findings."""
        count = str(self.text.value).count("\n") + 2
        self.text.rows = count
        numbers = "\n".join(
            f"<b style='color:#D55E00'>▸{line}</b>" if line in marked else str(line)
            for line in range(1, count)
        )
        self._lines.value = f"<pre class='mudkit-lines' aria-hidden='true'>{numbers}</pre>"


def _text(description: str, tooltip: str) -> Any:
    """Build a text control."""
    return ipywidgets.Text(description=description, tooltip=tooltip, layout={"width": "60%"})


def _slider(description: str, values: tuple[Any, ...], value: Any) -> Any:
    """Build a slider; a number between its values is inserted."""
    options = list(values)
    if value not in options:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ParameterError("Expected a number.", where=description, found=repr(value))
        numbers = [place for place, option in enumerate(options) if not isinstance(option, str)]
        after = [place for place in numbers if options[place] > value]
        options.insert(after[0] if after else numbers[-1] + 1, value)
    named = [(option if isinstance(option, str) else f"{option:,g}", option) for option in options]
    return ipywidgets.SelectionSlider(options=named, value=value, description=description)


def _findings(problems: list[Finding], lines: list[str]) -> str:
    """Return the checker's findings as HTML."""
    if not problems:
        return "<div>✓ The checker has found nothing: the policy can be used.</div>"
    rows = [
        [
            "" if problem.line is None else f"line {problem.line}",
            Cell("", strong=f"{'✗' if problem.is_error else '?'} {problem.kind}"),
            [Cell(problem.text), *_quoted(problem.line, lines)],
        ]
        for problem in problems
    ]
    errors = sum(problem.is_error for problem in problems)
    verdict = "The policy would be rejected." if errors else "The policy can be used."
    return Table(["line", "finding", "reason"], rows, f"The checker: {verdict}").html()


def _quoted(line: int | None, lines: list[str]) -> list[Cell]:
    """Return a line of the rules as a cell of code; none without a line."""
    text = "" if line is None or line > len(lines) else lines[line - 1].strip()
    return [Cell(text, is_code=True)] if text else []


def _status(policy: Policy, why: Explanation, at_s: float, is_kept: bool) -> str:
    """Return the decision as HTML."""
    rule = why.verdict.rule
    named = "no rule fires" if rule is None else f"rule {rule + 1} fires, {escape(policy.rules[rule].name)}"
    problem = f": {escape(why.verdict.problem)}" if why.verdict.problem else ""
    return (
        f"<div role='status'><b>{named}</b>: {why.verdict.outcome} "
        f"(published {at_s:,g} s after the start{'; kept' if is_kept else ''}){problem}.</div>"
    )


def _rules(policy: Policy, why: Explanation) -> str:
    """Return a table of the rules as HTML, with what each evaluated to."""
    rows = []
    seen = {evaluation.number: evaluation for evaluation in why.seen}
    for number, rule in enumerate(policy.rules):
        line = policy.places.line(("rules", number))
        evaluation = seen.get(number)
        holds, values = "not evaluated", ""
        if evaluation is not None:
            holds = "NULL" if evaluation.truth is None else str(evaluation.truth).upper()
            values = ", ".join(
                f"{name} = {'NULL' if value is None else value}" for name, value in evaluation.values.items()
            )
        texts = (str(number + 1), str(line or ""), rule.name, rule.when or "always", holds, values)
        fires = number == why.verdict.rule
        rows.append([Cell("", strong=text) if fires and text else Cell(text) for text in texts])
    return Table(("rule", "line", "name", "when", "holds", "values"), rows).html()


def _sent(body: Mapping[str, Any], verdict: Verdict) -> str:
    """Return a table of the fields before and after the decision, as HTML."""
    out = verdict.out or {}
    names = [*body, *(name for name in out if name not in body)]
    rows = [tuple(map(Cell, (name, _value(body, name), _value(out, name)))) for name in names]
    return Table(("field", "published", "sent"), rows).html()


def _value(body: Mapping[str, Any], name: str) -> str:
    """Return a field as text; bytes by their number, a missing one as a dash."""
    if name not in body:
        return "–"
    value = body[name]
    return f"{len(value):,} bytes" if isinstance(value, bytes) else str(value)
