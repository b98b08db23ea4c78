"""The definitions of Mobius's appendix A, by trying everything: slow, plain, and written apart from mudkit's checker.

It knows operations only as data (client, times, kind, contents, outcome). A record is a state machine whose state
is the write that stands in it; a view is a sequence of operations that the machine can go through; for each model
all subsets, orders and assignments are gone through.
"""

from __future__ import annotations

import itertools
from functools import partial

MODELS = (
    "linearizable", "sequential-wio", "sequential", "fork-linearizable", "fork-sequential", "fork-sequential-retracted",
    "monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads",
)  # fmt: skip


def over_before(ops, a, b):
    """Program order: a was answered when b was invoked; ties as they were invoked."""
    end, begin = ops[a].answered_us, ops[b].invoked_us
    return end is not None and (end < begin or (end == begin and a < b))


def is_refused(op):
    return op.outcome in ("conflict", "failed")


def matches(op, version, content):
    """May a content be what a write has left? ``version`` is the write's, assigned or its own."""
    if content.version is not None:
        return version == content.version and content.value in (None, op.content.value)
    return op.content.value == content.value


def is_initial(content):
    return content.value is None and content.version in (None, 0)


class World:
    """A completion of a history: which pending writes took effect, and which versions they got."""

    def __init__(self, ops, effective, versions, vain, saw=None):
        self.ops, self.effective, self.versions, self.vain, self.saw = ops, effective, versions, vain, saw
        self.included = [i for i, op in enumerate(ops) if i in effective or op.outcome != "pending"]

    def shows(self, state, content):
        return (
            is_initial(content)
            if state is None
            else matches(self.ops[state], self.versions.get(state), content)
        )

    def step(self, state, i):
        """The next state, or False if the operation could not have gone like this."""
        op = self.ops[i]
        if op.kind == "read":
            if self.saw is not None and self.saw[i] != state:
                return False
            return state if self.shows(state, op.content) else False
        if op.outcome == "failed":
            return state
        if op.outcome == "conflict":
            if op.actual is not None and not self.shows(state, op.actual):
                return False
            return False if i in self.vain and self.vain[i] == (state,) else state
        if op.expected is not None and (not self.shows(state, op.expected)):
            return False
        return i

    def in_order(self, a, b, wio, real_time):
        """Must a come before b in every view that has both?"""
        ops, v = self.ops, self.versions
        if b in self.vain and self.vain[b] == (a,):  # its client knew it
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
            return over_before(ops, a, b) or (wio and a < b and "write" in (ops[a].kind, ops[b].kind))
        return real_time and ops[a].answered_us is not None and ops[a].answered_us < ops[b].invoked_us

    def sequences(self, wio=False, real_time=False):
        """All legal sequences of included operations that keep the order."""
        must = {
            (a, b)
            for a in self.included
            for b in self.included
            if a != b and self.in_order(a, b, wio, real_time)
        }

        def grow(sequence, state):
            yield sequence
            for i in self.included:
                if i in sequence or any((i, earlier) in must for earlier in sequence):
                    continue
                following = self.step(state, i)
                if following is not False:
                    yield from grow((*sequence, i), following)

        return grow((), None)

    def has_one_view(self, wio, real_time):
        return any(len(s) == len(self.included) for s in self.sequences(wio, real_time))

    def has_forking_views(self, real_time):
        clients = sorted({self.ops[i].client for i in self.included})
        own = [{i for i in self.included if self.ops[i].client == c} for c in clients]
        possible = [[] for _ in clients]
        for s in self.sequences(False, real_time):
            for mine, result in zip(own, possible, strict=True):
                if mine <= set(s) and (
                    not s or s[-1] in mine
                ):  # what comes after the last own one is of no use
                    result.append(s)
        return _choose(possible, [])


def agree(one, two):
    """No-join: for each operation in both, the two are the same up to it."""
    return all(one[: one.index(o) + 1] == two[: two.index(o) + 1] for o in one if o in two)


def _choose(possible, chosen):
    if not possible:
        return True
    return any(
        _choose(possible[1:], [*chosen, s]) for s in possible[0] if all(agree(s, other) for other in chosen)
    )


def worlds(ops, saw=None, aside=()):
    """All completions of a history."""
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
        for some in itertools.combinations(pending, size):
            effective = committed | set(some)
            known = {i: ops[i].content.version for i in effective if ops[i].content.version is not None}
            open_ = [i for i in effective if i not in known]
            free = sorted(mentioned - set(known.values()))
            for given in itertools.product([None, *free], repeat=len(open_)):
                taken = [v for v in given if v is not None]
                if len(set(taken)) != len(taken):
                    continue
                versions = known | {i: v for i, v in zip(open_, given, strict=True) if v is not None}
                yield from _vain(ops, effective, versions, saw, aside)


def _vain(ops, effective, versions, saw, aside):
    """Which write did each conflict expect in vain? One that has no effect does not matter."""
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
            result += ["nobody" for op in aside if matches(op, None, content)]
        choices.append(result or ["nobody"])
    for choice in itertools.product(*choices):
        yield World(ops, effective, versions, dict(zip(conflicts, choice, strict=True)), saw)


def _seers(ops):
    """Who has certainly seen what."""
    seers = []
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
            seers.append((i, content))
    return seers


def is_broken(ops):
    """Anomalies that no model allows: one version twice, or a content that nobody can have written."""
    known = [
        op.content.version
        for op in ops
        if op.kind == "write" and not is_refused(op) and op.content.version is not None
    ]
    if len(set(known)) != len(known):
        return True
    seers = _seers(ops)
    loose = [
        i
        for i, op in enumerate(ops)
        if op.kind == "write" and op.content.version is None and not is_refused(op)
    ]
    free = sorted({c.version for _, c in seers if c.version not in (None, 0)} - set(known))
    for given in itertools.product([None, *free], repeat=len(loose)):
        taken = [v for v in given if v is not None]
        if len(set(taken)) != len(taken):
            continue
        versions = {
            i: None if is_refused(op) else op.content.version
            for i, op in enumerate(ops)
            if op.kind == "write"
        } | dict(zip(loose, given, strict=True))
        if all(
            is_initial(c) or any(w != i and matches(ops[w], v, c) for w, v in versions.items())
            for i, c in seers
        ):
            return False
    return True


def retractions(ops):
    """All ways to set refused writes aside with what their clients read of them: (what is left, what each read saw)."""
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
        saw = dict(zip(reads, choice, strict=True))
        pending = [
            i
            for i, op in enumerate(ops)
            if op.kind == "write" and op.outcome == "pending" and op.expected is not None
        ]
        for size in range(len(pending) + 1):
            for chained in itertools.combinations(pending, size):
                left = _set_aside(ops, saw, set(chained))
                if left is not None:
                    yield left, saw


def _set_aside(ops, saw, chained):
    doomed = {w for w, op in enumerate(ops) if op.kind == "write" and is_refused(op)}
    aside = {w for w in saw.values() if w in doomed} | chained
    for _ in ops:  # a pending write goes back, over others, to a refused write of its own client
        doomed |= {
            c
            for c, op in enumerate(ops)
            if op.kind == "write"
            and op.outcome == "pending"
            and any(w != c and ops[w].client == op.client and _may_be(ops[w], op.expected) for w in doomed)
        }
    if not chained <= doomed & set(saw.values()):
        return None
    gone = {r for r, w in saw.items() if w in aside}
    for r in gone:
        w = saw[r]
        if ops[r].content.version is not None:
            return None
        if ops[w].client != ops[r].client or over_before(ops, w, r) or over_before(ops, r, w):
            return None
        for later in saw:
            if (
                ops[later].client == ops[r].client
                and ops[later].type == ops[r].type
                and over_before(ops, r, later)
                and (ops[w].answered_us is None or ops[later].answered_us < ops[w].answered_us)
            ):
                newer = saw[later]
                if newer is None or newer < w or ops[newer].client != ops[r].client:
                    return None
    return [i for i in range(len(ops)) if i not in gone and i not in aside]


def _may_be(op, content):
    return content is not None and content.version is None and op.content.value == content.value


def session(ops, guarantee):
    """Is there an order of the writes that no session contradicts?"""
    writes = [i for i, op in enumerate(ops) if op.kind == "write"]
    reads = [i for i, op in enumerate(ops) if op.kind == "read"]
    counts = {i for i in writes if not is_refused(ops[i])}
    for order in itertools.permutations(writes):
        rank = {w: n for n, w in enumerate(order)} | {None: -1}
        for versions in _versions(ops, writes, order):
            options = [
                [w for w in writes if matches(ops[w], versions.get(w), ops[r].content)]
                + ([None] if is_initial(ops[r].content) else [])
                for r in reads
            ]
            for choice in itertools.product(*options):
                saw = dict(zip(reads, choice, strict=True))
                if _respects(ops, guarantee, rank, saw, counts, over=partial(over_before, ops)):
                    return True
    return False


def _versions(ops, writes, order):
    known = {
        w: ops[w].content.version
        for w in writes
        if ops[w].content.version is not None and not is_refused(ops[w])
    }
    loose = [w for w in writes if w not in known and not is_refused(ops[w])]
    seers = _seers(ops)
    free = sorted({c.version for _, c in seers if c.version not in (None, 0)} - set(known.values()))
    for given in itertools.product([None, *free], repeat=len(loose)):
        taken = [v for v in given if v is not None]
        if len(set(taken)) == len(taken):
            versions = known | {w: v for w, v in zip(loose, given, strict=True) if v is not None}
            line = [versions[w] for w in order if w in versions]
            all_seen = all(
                is_initial(c) or any(w != i and matches(ops[w], versions.get(w), c) for w in writes)
                for i, c in seers
            )
            if line == sorted(line) and all_seen:
                yield versions


def _respects(ops, guarantee, rank, saw, counts, over):
    if guarantee == "monotonic-reads":
        return all(
            rank[saw[a]] <= rank[saw[b]]
            for a in saw
            for b in saw
            if ops[a].client == ops[b].client and ops[a].type == ops[b].type and a != b and over(a, b)
        )
    every = range(len(ops))
    pairs = [(a, b) for a in every for b in every if a != b and ops[a].client == ops[b].client and over(a, b)]
    if guarantee == "read-your-writes":
        return all(rank[a] <= rank[saw[b]] for a, b in pairs if a in counts and b in saw)
    if guarantee == "monotonic-writes":
        return all(rank[a] < rank[b] for a, b in pairs if a in counts and b in counts)
    return all(rank[saw[a]] < rank[b] for a, b in pairs if a in saw and b in counts)


def meets(operations, model):
    """Say whether the operations of one record meet a model."""
    ops = [op for op in operations if op.kind == "write" or op.outcome == "ok"]
    if is_broken(ops):
        return False
    if model in ("monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads"):
        return session(ops, model)
    if model == "fork-sequential-retracted":
        for left, saw in retractions(ops):
            new = {old: n for n, old in enumerate(left)} | {None: None}
            kept = [ops[i] for i in left]
            aside = [op for i, op in enumerate(ops) if i not in new and op.kind == "write"]
            if any(saw[i] not in new for i in left if i in saw):
                continue
            seen = {new[r]: new[w] for r, w in saw.items() if r in new}
            if any(world.has_forking_views(False) for world in worlds(kept, seen, aside)):
                return True
        return False
    for world in worlds(ops):
        if model in ("linearizable", "sequential", "sequential-wio"):
            if world.has_one_view(model == "sequential-wio", model == "linearizable"):
                return True
        elif world.has_forking_views(model == "fork-linearizable"):
            return True
    return False


def views_hold(operations, views, model):
    """Check views that were found, one by one, by the definitions; for histories of any size.

    Returns what is wrong, or None.
    """
    ops = [op for op in operations if op.kind == "write" or op.outcome == "ok"]
    number = {op.id: i for i, op in enumerate(ops)}
    result = {client: [number[op.id] for op in view] for client, view in views.items()}
    everything = {i for view in result.values() for i in view}
    for client, view in result.items():
        if len(set(view)) != len(view):
            return f"{client}: an operation twice"
        state = last = None
        for at, i in enumerate(view):
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
                    is_initial(op.expected) if state is None else _left(ops[state], op.expected)
                ):
                    return f"{client}: {op} replaced something else"
                state = i
                if op.content.version is not None:
                    if last is not None and op.content.version < last:
                        return f"{client}: {op} after version {last}"
                    last = op.content.version
            for later in view[at + 1 :]:
                a, b = later, i
                if ops[a].client == ops[b].client:
                    wrong = over_before(ops, a, b) or (
                        model == "sequential-wio" and a < b and "write" in (ops[a].kind, ops[b].kind)
                    )
                else:
                    wrong = (
                        model in ("linearizable", "fork-linearizable")
                        and ops[a].answered_us is not None
                        and ops[a].answered_us < ops[b].invoked_us
                    )
                if wrong:
                    return f"{client}: {ops[b]} stands before {ops[a]}"
        for i, op in enumerate(ops):
            if op.client == client and i not in view and (op.outcome != "pending" or i in everything):
                return f"{client}: {op} is missing"
    views = list(result.values())
    if not all(agree(one, two) for one, two in itertools.combinations(views, 2)):
        return "views join"
    if model in ("linearizable", "sequential", "sequential-wio") and any(view != views[0] for view in views):
        return "not one view"
    return None


def _left(op, content):
    return matches(op, op.content.version or content.version, content)
