"""Definitions of Mobius's appendix A by exhaustive search: slow, simple, and independent of mudkit's checker.

Operations are plain data (client, times, kind, contents, outcome). A record is a state machine whose state is the
last write that took effect; a view is a sequence of operations that the machine accepts. For each model all
subsets, orders and assignments are tried.
"""

from __future__ import annotations

import itertools
from functools import partial

MODELS = (
    "linearizable", "sequential-wio", "sequential", "fork-linearizable", "fork-sequential", "fork-sequential-retracted",
    "monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads",
)  # fmt: skip


def precedes(ops, a, b):
    """Return whether a precedes b in program order: a was answered when b was invoked; ties by invocation."""
    end, begin = ops[a].answered_us, ops[b].invoked_us
    return end is not None and (end < begin or (end == begin and a < b))


def is_refused(op):
    return op.outcome in ("conflict", "failed")


def matches(op, version, content):
    """Return whether a write may have left a content; ``version`` is that of the write, assigned or known."""
    if content.version is not None:
        return version == content.version and content.value in (None, op.content.value)
    return op.content.value == content.value


def is_initial(content):
    return content.value is None and content.version in (None, 0)


class World:
    """Completion of a history: the pending writes that took effect, and the versions of the writes."""

    def __init__(self, ops, effective, versions, expected_writers, read_sources=None):
        self.ops, self.effective, self.versions, self.expected_writers, self.read_sources = (
            ops,
            effective,
            versions,
            expected_writers,
            read_sources,
        )
        self.included = [i for i, op in enumerate(ops) if i in effective or op.outcome != "pending"]

    def matches_state(self, state, content):
        return (
            is_initial(content)
            if state is None
            else matches(self.ops[state], self.versions.get(state), content)
        )

    def step(self, state, i):
        """Return the next state, or False if the operation is not legal in this state."""
        op = self.ops[i]
        if op.kind == "read":
            if self.read_sources is not None and self.read_sources[i] != state:
                return False
            return state if self.matches_state(state, op.content) else False
        if op.outcome == "failed":
            return state
        if op.outcome == "conflict":
            if op.actual is not None and not self.matches_state(state, op.actual):
                return False
            return False if i in self.expected_writers and self.expected_writers[i] == (state,) else state
        if op.expected is not None and (not self.matches_state(state, op.expected)):
            return False
        return i

    def in_order(self, a, b, wio, real_time):
        """Return whether a must be before b in every view that has both."""
        ops, v = self.ops, self.versions
        if b in self.expected_writers and self.expected_writers[b] == (a,):  # its client had seen a
            return True
        if (
            a in self.effective
            and b in self.effective
            and v.get(a) is not None
            and v.get(b) is not None
            and v[a] < v[b]
        ):
            return True
        if ops[a].client == ops[b].client:
            return precedes(ops, a, b) or (wio and a < b and "write" in (ops[a].kind, ops[b].kind))
        return real_time and ops[a].answered_us is not None and ops[a].answered_us < ops[b].invoked_us

    def sequences(self, wio=False, real_time=False):
        """Yield all legal sequences of included operations that keep the order."""
        order = {
            (a, b)
            for a in self.included
            for b in self.included
            if a != b and self.in_order(a, b, wio, real_time)
        }

        def grow(sequence, state):
            yield sequence
            for i in self.included:
                if i in sequence or any((i, earlier) in order for earlier in sequence):
                    continue
                next_state = self.step(state, i)
                if next_state is not False:
                    yield from grow((*sequence, i), next_state)

        return grow((), None)

    def has_one_view(self, wio, real_time):
        return any(len(s) == len(self.included) for s in self.sequences(wio, real_time))

    def has_forking_views(self, real_time):
        clients = sorted({self.ops[i].client for i in self.included})
        own = [{i for i in self.included if self.ops[i].client == c} for c in clients]
        possible = [[] for _ in clients]
        for s in self.sequences(False, real_time):
            for own_operations, result in zip(own, possible, strict=True):
                if own_operations <= set(s) and (
                    not s or s[-1] in own_operations
                ):  # operations after the last own one are irrelevant
                    result.append(s)
        return _choose(possible, [])


def have_common_prefixes(first, second):
    """Return whether no-join holds: up to each operation in both, the two views are equal."""
    return all(first[: first.index(o) + 1] == second[: second.index(o) + 1] for o in first if o in second)


def _choose(possible, chosen):
    if not possible:
        return True
    return any(
        _choose(possible[1:], [*chosen, s])
        for s in possible[0]
        if all(have_common_prefixes(s, other) for other in chosen)
    )


def enumerate_worlds(ops, read_sources=None, excluded=()):
    """Yield all completions of a history."""
    committed = {i for i, op in enumerate(ops) if op.kind == "write" and op.outcome == "ok"}
    pending = [i for i, op in enumerate(ops) if op.kind == "write" and op.outcome == "pending"]
    contents = [
        c
        for op in ops
        for c in (op.content if op.kind == "read" else None, op.expected, op.actual)
        if c is not None
    ]
    mentioned = {c.version for c in contents if c.version not in (None, 0)}
    for size in range(len(pending) + 1):
        for taken_pending in itertools.combinations(pending, size):
            effective = committed | set(taken_pending)
            known = {i: ops[i].content.version for i in effective if ops[i].content.version is not None}
            open_ = [i for i in effective if i not in known]
            unassigned = sorted(mentioned - set(known.values()))
            for assignment in itertools.product([None, *unassigned], repeat=len(open_)):
                assigned = [v for v in assignment if v is not None]
                if len(set(assigned)) != len(assigned):
                    continue
                versions = known | {i: v for i, v in zip(open_, assignment, strict=True) if v is not None}
                yield from _enumerate_expected_writers(ops, effective, versions, read_sources, excluded)


def _enumerate_expected_writers(ops, effective, versions, read_sources, excluded):
    """Yield completions with the write that each conflict expected; one without effect does not matter."""
    conflicts = [i for i, op in enumerate(ops) if op.outcome == "conflict" and op.expected is not None]
    choices = []
    for i in conflicts:
        content = ops[i].expected
        result = [(w,) for w in effective if matches(ops[w], versions.get(w), content)]
        if is_initial(content):
            result.append((None,))
        if content.version is None:
            result += [
                "nobody"
                for w, op in enumerate(ops)
                if w != i and op.kind == "write" and w not in effective and matches(op, None, content)
            ]
        if content.version is None:
            result += ["nobody" for op in excluded if matches(op, None, content)]
        choices.append(result or ["nobody"])
    for choice in itertools.product(*choices):
        yield World(ops, effective, versions, dict(zip(conflicts, choice, strict=True)), read_sources)


def _list_observations(ops):
    """Return the operations that certainly saw a content, with this content."""
    observations = []
    for i, op in enumerate(ops):
        content = (
            op.content
            if op.kind == "read"
            else op.actual
            if op.outcome == "conflict"
            else op.expected
            if op.outcome == "ok"
            else None
        )
        if content is not None:
            observations.append((i, content))
    return observations


def is_broken(ops):
    """Return whether there is an anomaly under every model: a repeated version, or a content without a write."""
    known = [
        op.content.version
        for op in ops
        if op.kind == "write" and not is_refused(op) and op.content.version is not None
    ]
    if len(set(known)) != len(known):
        return True
    observations = _list_observations(ops)
    unversioned = [
        i
        for i, op in enumerate(ops)
        if op.kind == "write" and op.content.version is None and not is_refused(op)
    ]
    unassigned = sorted({c.version for _, c in observations if c.version not in (None, 0)} - set(known))
    for assignment in itertools.product([None, *unassigned], repeat=len(unversioned)):
        assigned = [v for v in assignment if v is not None]
        if len(set(assigned)) != len(assigned):
            continue
        versions = {
            i: None if is_refused(op) else op.content.version
            for i, op in enumerate(ops)
            if op.kind == "write"
        } | dict(zip(unversioned, assignment, strict=True))
        if all(
            is_initial(c) or any(w != i and matches(ops[w], v, c) for w, v in versions.items())
            for i, c in observations
        ):
            return False
    return True


def enumerate_retractions(ops):
    """Yield (remaining operations, source of each read) for all ways to exclude refused writes and reads of them."""
    reads = [i for i, op in enumerate(ops) if op.kind == "read"]
    options = []
    for r in reads:
        content = ops[r].content
        result = [
            w
            for w, op in enumerate(ops)
            if op.kind == "write"
            and (
                matches(op, None, content)
                if content.version is None
                else not is_refused(op) and matches(op, op.content.version or content.version, content)
            )
        ]
        options.append(result + ([None] if is_initial(content) else []))
    for choice in itertools.product(*options):
        read_sources = dict(zip(reads, choice, strict=True))
        pending = [
            i
            for i, op in enumerate(ops)
            if op.kind == "write" and op.outcome == "pending" and op.expected is not None
        ]
        for size in range(len(pending) + 1):
            for chained in itertools.combinations(pending, size):
                remaining_indices = _exclude(ops, read_sources, set(chained))
                if remaining_indices is not None:
                    yield remaining_indices, read_sources


def _exclude(ops, read_sources, chained):
    refused = {w for w, op in enumerate(ops) if op.kind == "write" and is_refused(op)}
    excluded = {w for w in read_sources.values() if w in refused} | chained
    for _ in ops:  # a pending write that is based, also over others, on a refused write of its client
        refused |= {
            c
            for c, op in enumerate(ops)
            if op.kind == "write"
            and op.outcome == "pending"
            and any(
                w != c and ops[w].client == op.client and _matches_value(ops[w], op.expected) for w in refused
            )
        }
    if not chained <= refused & set(read_sources.values()):
        return None
    excluded_reads = {r for r, w in read_sources.items() if w in excluded}
    for r in excluded_reads:
        w = read_sources[r]
        if ops[r].content.version is not None:
            return None
        if ops[w].client != ops[r].client or precedes(ops, w, r) or precedes(ops, r, w):
            return None
        for later in read_sources:
            if (
                ops[later].client == ops[r].client
                and ops[later].type == ops[r].type
                and precedes(ops, r, later)
                and (ops[w].answered_us is None or ops[later].answered_us < ops[w].answered_us)
            ):
                newer = read_sources[later]
                if newer is None or newer < w or ops[newer].client != ops[r].client:
                    return None
    return [i for i in range(len(ops)) if i not in excluded_reads and i not in excluded]


def _matches_value(op, content):
    return content is not None and content.version is None and op.content.value == content.value


def meets_session_guarantee(ops, guarantee):
    """Return whether an order of the writes satisfies a session guarantee."""
    writes = [i for i, op in enumerate(ops) if op.kind == "write"]
    reads = [i for i, op in enumerate(ops) if op.kind == "read"]
    effective = {i for i in writes if not is_refused(ops[i])}
    for order in itertools.permutations(writes):
        rank = {w: n for n, w in enumerate(order)} | {None: -1}
        for versions in _enumerate_versions(ops, writes, order):
            options = [
                [w for w in writes if matches(ops[w], versions.get(w), ops[r].content)]
                + ([None] if is_initial(ops[r].content) else [])
                for r in reads
            ]
            for choice in itertools.product(*options):
                read_sources = dict(zip(reads, choice, strict=True))
                if _satisfies(
                    ops, guarantee, rank, read_sources, effective, is_before=partial(precedes, ops)
                ):
                    return True
    return False


def _enumerate_versions(ops, writes, order):
    known = {
        w: ops[w].content.version
        for w in writes
        if ops[w].content.version is not None and not is_refused(ops[w])
    }
    unversioned = [w for w in writes if w not in known and not is_refused(ops[w])]
    observations = _list_observations(ops)
    unassigned = sorted(
        {c.version for _, c in observations if c.version not in (None, 0)} - set(known.values())
    )
    for assignment in itertools.product([None, *unassigned], repeat=len(unversioned)):
        assigned = [v for v in assignment if v is not None]
        if len(set(assigned)) == len(assigned):
            versions = known | {w: v for w, v in zip(unversioned, assignment, strict=True) if v is not None}
            ordered = [versions[w] for w in order if w in versions]
            all_seen = all(
                is_initial(c) or any(w != i and matches(ops[w], versions.get(w), c) for w in writes)
                for i, c in observations
            )
            if ordered == sorted(ordered) and all_seen:
                yield versions


def _satisfies(ops, guarantee, rank, read_sources, effective, is_before):
    if guarantee == "monotonic-reads":
        return all(
            rank[read_sources[a]] <= rank[read_sources[b]]
            for a in read_sources
            for b in read_sources
            if ops[a].client == ops[b].client and ops[a].type == ops[b].type and a != b and is_before(a, b)
        )
    indices = range(len(ops))
    pairs = [
        (a, b)
        for a in indices
        for b in indices
        if a != b and ops[a].client == ops[b].client and is_before(a, b)
    ]
    if guarantee == "read-your-writes":
        return all(rank[a] <= rank[read_sources[b]] for a, b in pairs if a in effective and b in read_sources)
    if guarantee == "monotonic-writes":
        return all(rank[a] < rank[b] for a, b in pairs if a in effective and b in effective)
    return all(rank[read_sources[a]] < rank[b] for a, b in pairs if a in read_sources and b in effective)


def satisfies(operations, model):
    """Return whether the operations of one record meet a model."""
    ops = [op for op in operations if op.kind == "write" or op.outcome == "ok"]
    if is_broken(ops):
        return False
    if model in ("monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads"):
        return meets_session_guarantee(ops, model)
    if model == "fork-sequential-retracted":
        for remaining_indices, read_sources in enumerate_retractions(ops):
            new = {old: n for n, old in enumerate(remaining_indices)} | {None: None}
            remaining = [ops[i] for i in remaining_indices]
            excluded = [op for i, op in enumerate(ops) if i not in new and op.kind == "write"]
            if any(read_sources[i] not in new for i in remaining_indices if i in read_sources):
                continue
            new_sources = {new[r]: new[w] for r, w in read_sources.items() if r in new}
            if any(
                world.has_forking_views(False) for world in enumerate_worlds(remaining, new_sources, excluded)
            ):
                return True
        return False
    for world in enumerate_worlds(ops):
        if model in ("linearizable", "sequential", "sequential-wio"):
            if world.has_one_view(model == "sequential-wio", model == "linearizable"):
                return True
        elif world.has_forking_views(model == "fork-linearizable"):
            return True
    return False


def find_view_error(operations, views, model):
    """Check the views of a verdict by the definitions, for histories of any size.

    Returns a description of the first error, or None.
    """
    ops = [op for op in operations if op.kind == "write" or op.outcome == "ok"]
    number = {op.id: i for i, op in enumerate(ops)}
    result = {client: [number[op.id] for op in view] for client, view in views.items()}
    included = {i for view in result.values() for i in view}
    for client, view in result.items():
        if len(set(view)) != len(view):
            return f"{client}: an operation twice"
        state = last = None
        for position, i in enumerate(view):
            op = ops[i]
            if op.kind == "read" or (op.outcome == "conflict" and op.actual is not None):
                content = op.content if op.kind == "read" else op.actual
                if not (
                    is_initial(content)
                    if state is None
                    else matches(
                        ops[state],
                        content.version if ops[state].content.version is None else ops[state].content.version,
                        content,
                    )
                ):
                    return f"{client}: {op} after {state}"
            if op.kind == "write" and op.outcome in ("ok", "pending"):
                if op.expected is not None and not (
                    is_initial(op.expected) if state is None else _matches_replaced(ops[state], op.expected)
                ):
                    return f"{client}: {op} replaced something else"
                state = i
                if op.content.version is not None:
                    if last is not None and op.content.version < last:
                        return f"{client}: {op} after version {last}"
                    last = op.content.version
            for later in view[position + 1 :]:
                a, b = later, i
                if ops[a].client == ops[b].client:
                    is_reversed = precedes(ops, a, b) or (
                        model == "sequential-wio" and a < b and "write" in (ops[a].kind, ops[b].kind)
                    )
                else:
                    is_reversed = (
                        model in ("linearizable", "fork-linearizable")
                        and ops[a].answered_us is not None
                        and ops[a].answered_us < ops[b].invoked_us
                    )
                if is_reversed:
                    return f"{client}: {ops[b]} stands before {ops[a]}"
        for i, op in enumerate(ops):
            if op.client == client and i not in view and (op.outcome != "pending" or i in included):
                return f"{client}: {op} is missing"
    views = list(result.values())
    if not all(have_common_prefixes(first, second) for first, second in itertools.combinations(views, 2)):
        return "views join"
    if model in ("linearizable", "sequential", "sequential-wio") and any(view != views[0] for view in views):
        return "not one view"
    return None


def _matches_replaced(op, content):
    return matches(op, op.content.version or content.version, content)
