"""SUBLIM: the server keeps state per subscriber, and the subscriber's policy rewrites each message by it.

The community of the paper's section 4 is {S, C, ST, P, M}: a server S (here the access points, each for the
subscribers attached to it), subscribers C, for each a state of variables ST, a policy P, and messages M.
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.systems.sublim._policy.function import FunctionPolicy, policy
    from mudkit.systems.sublim._policy.message import compress, create_message, expand, method, resize
    from mudkit.systems.sublim._policy.policy import Policy, Rule, decision_table
    from mudkit.systems.sublim._policy.state import State
    from mudkit.systems.sublim._policy.text import PolicyError
    from mudkit.systems.sublim._policy.verdict import Explanation, Verdict
    from mudkit.systems.sublim.api import AccessPoint, PlainSubscriber, PublishServer, Subscriber, explain
    from mudkit.systems.sublim.check.checker import Finding, checked, findings
    from mudkit.systems.sublim.study import disaster_policy, shared_timestamp_policy, stock_policy
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "AccessPoint",
    "Explanation",
    "Finding",
    "FunctionPolicy",
    "PlainSubscriber",
    "Policy",
    "PolicyError",
    "PublishServer",
    "Rule",
    "State",
    "Subscriber",
    "Verdict",
    "checked",
    "compress",
    "create_message",
    "decision_table",
    "disaster_policy",
    "expand",
    "explain",
    "findings",
    "method",
    "policy",
    "resize",
    "shared_timestamp_policy",
    "stock_policy",
]
