"""PolicyWorkbench: edit a subscriber's policy, or drag what mistakes cost, and see at once what changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any, Final

import ipywidgets

from mudkit import figures
from mudkit.display import Cell, Table
from mudkit.errors import MudkitError, ParameterError
from mudkit.experiment import CacheBench
from mudkit.systems.sublim import Explanation, Finding, Policy, Rule, Verdict, findings
from mudkit.systems.sublim._policy.policy import decision_table
from mudkit.widgets.cost_page import CostPage
from mudkit.widgets.figure import Figure
from mudkit.widgets.panel import Panel, alert, read_object

__all__ = ["PolicyWorkbench"]

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
    "Rules are asked from the first on; the first that holds fires. Nothing is kept until you press "
    "<b>decide and keep</b>: then variables stay as the policy leaves them, and time goes on."
)


class PolicyWorkbench(Panel):
    """Edit rules, a message and a state; findings, the rule that fires and what is sent follow each key.

    Invalid rules show an error with its line, and the last valid policy stays in use. Everything works from
    the keyboard. A second page is for learnt cache policies: see
    :class:`~mudkit.widgets.cost_page.CostPage`.

    Parameters
    ----------
    policy : str
        A policy as YAML.
    messages : mapping of str to mapping
        The messages to choose from, by name; each is a row of the figure. None: there is no page for such a
        policy.
    trained : CacheBench, optional
        Trees whose costs are dragged; without it there is no page for costs.
    bandwidth_kbps, battery : float, optional
        The state at first; None: no limit, or on a charger.
    display_px : int

    Attributes
    ----------
    text : ipywidgets.Textarea
    message : ipywidgets.Dropdown
    body : ipywidgets.Text
        The chosen message as JSON; a number in a field of bytes is how many there are.
    battery, bandwidth, step : ipywidgets.SelectionSlider
        Automatic variables; how long after the message before this one is published.
    display : ipywidgets.BoundedIntText
    variables : ipywidgets.Text
        Manual variables as JSON.
    keep, begin : ipywidgets.Button
        Decide and keep; begin again with the policy's own variables.
    problem, findings, status, rules, sent : ipywidgets.HTML
        What cannot be; what the checker has found; the decision; what each rule saw; the message before and
        after.
    figure : Figure
    costs : CostPage
        The page of costs, with ``trained``; all others are there with messages.

    Raises
    ------
    ParameterError
        There is neither a message nor anything trained.
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
            raise ParameterError("A policy decides about messages.", where="messages", found="none")
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
        """Make the page for a policy of rules."""
        self._messages = {name: dict(body) for name, body in messages.items()}
        self._policy: Policy | None = None
        self._now_s, self._is_changing = 0.0, False
        self._refused = ""
        first = next(iter(self._messages))
        self.text = ipywidgets.Textarea(value=policy, layout={"width": "100%", "height": "auto"})
        self.text.add_class("mudkit-policy")
        self._lines = ipywidgets.HTML()
        self.message = ipywidgets.Dropdown(options=list(self._messages), value=first, description="message")
        self.body = _text("its fields", "JSON; a number in a field of bytes is how many there are")
        self.battery = _slider("battery, %", _LEVELS, _CHARGER if battery is None else battery)
        self.bandwidth = _slider(
            "link, kbit/s", _KBPS, "no limit" if bandwidth_kbps is None else bandwidth_kbps
        )
        self.display = ipywidgets.BoundedIntText(
            value=display_px, min=1, max=10_000, description="display, px"
        )
        self.variables = _text("variables", "the policy's own variables, JSON")
        self.step = _slider("after, s", _STEPS_S, 10)
        self.keep = ipywidgets.Button(description="decide and keep", tooltip="variables and time go on")
        self.begin = ipywidgets.Button(description="begin again", tooltip="with the policy's first variables")
        self.problem, self.findings, self.status, self.rules, self.sent = (
            ipywidgets.HTML() for _ in range(5)
        )
        self.figure: Any = None
        self._choose()
        self._write()
        if self.figure is None:
            nothing = decision_table(Policy("", [Rule()]), {}, {})
            self.figure = Figure(figures.rule_firing(nothing, [], title="", x="battery, %"))
        self.text.observe(lambda _: self._write(), names="value")
        self.message.observe(lambda _: self._chosen(), names="value")
        for control in (self.body, self.battery, self.bandwidth, self.display, self.variables, self.step):
            control.observe(lambda _: self._decide(), names="value")
        self.keep.on_click(lambda _: self._decide(keeps=True))
        self.begin.on_click(lambda _: self._begin())
        left = ipywidgets.VBox([self._lines], layout={"width": "3.2em", "flex": "0 0 auto"})
        return ipywidgets.VBox([
            ipywidgets.HTML(_STYLE + _NOTE), ipywidgets.HBox([left, self.text], layout=_EDITOR),
            self.problem, self.findings,
            ipywidgets.HBox([self.message, self.body]),
            ipywidgets.HBox([self.battery, self.bandwidth, self.display]),
            ipywidgets.HBox([self.variables, self.step]), ipywidgets.HBox([self.keep, self.begin]),
            self.status, self.figure, self.rules, self.sent,
        ])  # fmt: skip

    # -- what changes

    def _write(self) -> None:
        text = str(self.text.value)
        try:
            policy = Policy.from_yaml(text if "\n" in text else text + "\n")
        except MudkitError as error:
            self._number({getattr(error, "line", None)})
            self._refused = alert("This is no policy yet; below is what the last one says.", error)
            self.problem.value = self._refused
            return
        self.problem.value = self._refused = ""
        before = None if self._policy is None else self._policy.variables
        self._policy = policy
        if policy.variables != before:
            self._put(self.variables, policy.variables)
        self._decide()
        problems = findings(policy)  # last: a policy with many conditions takes longer to check than to use
        self._number({each.line for each in problems})
        self.findings.value = _findings(problems, text.splitlines())

    def _choose(self) -> None:
        shown = {
            name: len(value) if isinstance(value, bytes) else value
            for name, value in self._messages[self.message.value].items()
        }
        self._put(self.body, shown)

    def _chosen(self) -> None:
        self._choose()
        self._decide()

    def _put(self, control: Any, value: Mapping[str, Any]) -> None:
        """Write into a control, and do nothing about it yet."""
        self._is_changing = True
        control.value = json.dumps(value)
        self._is_changing = False

    def _begin(self) -> None:
        self._now_s = 0.0
        if self._policy is not None:
            self._put(self.variables, self._policy.variables)
        self._decide()

    def _decide(self, keeps: bool = False) -> None:
        """Decide about the message that is shown, and show everything."""
        policy = self._policy
        if self._is_changing or policy is None:
            return
        try:
            body = self._read_body(policy)
            variables = read_object("variables", self.variables.value, _EXAMPLE)
        except MudkitError as error:
            unread = alert("This is not read yet; below is what was before.", error)
            self.problem.value = self._refused + unread
            return
        self.problem.value = self._refused
        at_s = self._now_s + self.step.value
        given = body, variables, self._automatic(self.battery.value), at_s
        verdict, seen = policy.decide(*given), policy.explain(*given)
        self.status.value = _status(policy, Explanation(verdict, seen), at_s, keeps)
        self.rules.value = _rules(policy, Explanation(verdict, seen))
        self.sent.value = _sent(body, verdict)
        self._draw(policy, body, variables, at_s)
        if keeps:
            self._now_s = at_s
            self._put(self.variables, dict(verdict.variables))

    def _read_body(self, policy: Policy) -> dict[str, Any]:
        """Read the message; of a field of bytes it says how many, and the chosen message has the first."""
        body = read_object("message", self.body.value, _EXAMPLE)
        chosen = self._messages[self.message.value]
        for name, value in body.items():
            is_bytes = policy.message.get(name) == "bytes" or isinstance(chosen.get(name), bytes)
            if is_bytes and isinstance(value, int) and not isinstance(value, bool):
                if not 0 <= value <= 100_000:
                    raise ParameterError(
                        "So many bytes are in no message.",
                        where=name,
                        found=str(value),
                        expected="0 to 100000",
                    )
                there = chosen.get(name)
                samples = there if isinstance(there, bytes) and there else b"\x80"
                body[name] = (samples * (value // len(samples) + 1))[:value]
        return body

    def _automatic(self, battery: Any) -> dict[str, Any]:
        variables = {
            "battery": battery,
            "bandwidth_kbps": self.bandwidth.value,
            "display_px": self.display.value,
        }
        return {name: value for name, value in variables.items() if not isinstance(value, str)}

    # -- what is shown

    def _draw(self, policy: Policy, body: dict[str, Any], variables: dict[str, Any], at_s: float) -> None:
        rows = {**self._messages, self.message.value: body}
        levels = [each for _, each in self.battery.options]
        states = {str(each): self._automatic(each) for each in levels}
        table = decision_table(policy, rows, states, variables, at_s)
        names = [rule.name for rule in policy.rules]
        link = self.bandwidth.value
        title = f"Which rule fires, {link if isinstance(link, str) else f'{link:,} kbit/s'}"
        now = (self.message.value, str(self.battery.value))
        if self.figure is None:  # a figure that is whole from the first on: it is not shown before
            made = figures.rule_firing(table, names, title=title, x="battery, %")
            figures.update_rule_firing(made, table, names, title=title, now=now)
            self.figure = Figure(made)
            return
        figures.update_rule_firing(self.figure, table, names, title=title, now=now)

    def _number(self, marked: set[int | None]) -> None:
        """Give each line its number, and mark those with which something is wrong."""
        count = str(self.text.value).count("\n") + 2
        self.text.rows = count
        numbers = "\n".join(
            f"<b style='color:#D55E00'>▸{line}</b>" if line in marked else str(line)
            for line in range(1, count)
        )
        self._lines.value = f"<pre class='mudkit-lines' aria-hidden='true'>{numbers}</pre>"


def _text(description: str, tooltip: str) -> Any:
    return ipywidgets.Text(
        description=description, tooltip=tooltip, layout={"width": "60%"}, continuous_update=True
    )


def _slider(description: str, values: tuple[Any, ...], value: Any) -> Any:
    """Make a slider; a number that is not among its values is put in its place."""
    options = list(values)
    if value not in options:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ParameterError("This is no number.", where=description, found=repr(value))
        numbers = [place for place, each in enumerate(options) if not isinstance(each, str)]
        after = [place for place in numbers if options[place] > value]
        options.insert(after[0] if after else numbers[-1] + 1, value)
    named = [(each if isinstance(each, str) else f"{each:,g}", each) for each in options]
    return ipywidgets.SelectionSlider(options=named, value=value, description=description)


def _findings(problems: list[Finding], lines: list[str]) -> str:
    if not problems:
        return "<div>✓ The checker has found nothing: this policy may be set.</div>"
    rows = [
        [
            "" if each.line is None else f"line {each.line}",
            Cell("", strong=f"{'✗' if each.is_error else '?'} {each.kind}"),
            [Cell(each.text), *_quoted(each.line, lines)],
        ]
        for each in problems
    ]
    errors = sum(each.is_error for each in problems)
    verdict = "It would be refused when it is set." if errors else "It may be set."
    return Table(["where", "what", "why"], rows, f"The checker: {verdict}").html()


def _quoted(line: int | None, lines: list[str]) -> list[Cell]:
    text = "" if line is None or line > len(lines) else lines[line - 1].strip()
    return [Cell(text, is_code=True)] if text else []


def _status(policy: Policy, why: Explanation, at_s: float, is_kept: bool) -> str:
    rule = why.verdict.rule
    named = "no rule fires" if rule is None else f"rule {rule + 1} fires, {escape(policy.rules[rule].name)}"
    problem = f": {escape(why.verdict.problem)}" if why.verdict.problem else ""
    return (
        f"<div role='status'><b>{named}</b>: {why.verdict.outcome} "
        f"(published {at_s:,g} s after the beginning{'; kept' if is_kept else ''}){problem}.</div>"
    )


def _rules(policy: Policy, why: Explanation) -> str:
    rows = []
    seen = {each.number: each for each in why.seen}
    for number, rule in enumerate(policy.rules):
        line = policy.places.line(("rules", number))
        each = seen.get(number)
        holds, saw = "not asked", ""
        if each is not None:
            holds = "NULL" if each.truth is None else str(each.truth).upper()
            saw = ", ".join(f"{name} = {'NULL' if got is None else got}" for name, got in each.values.items())
        texts = (str(number + 1), str(line or ""), rule.name, rule.when or "always", holds, saw)
        fires = number == why.verdict.rule
        rows.append([Cell("", strong=text) if fires and text else Cell(text) for text in texts])
    return Table(("rule", "line", "name", "when", "holds", "saw"), rows).html()


def _sent(body: Mapping[str, Any], verdict: Verdict) -> str:
    out = verdict.out or {}
    names = [*body, *(name for name in out if name not in body)]
    rows = [tuple(map(Cell, (name, _value(body, name), _value(out, name)))) for name in names]
    return Table(("field", "published", "sent"), rows).html()


def _value(body: Mapping[str, Any], name: str) -> str:
    if name not in body:
        return "–"
    value = body[name]
    return f"{len(value):,} bytes" if isinstance(value, bytes) else str(value)
