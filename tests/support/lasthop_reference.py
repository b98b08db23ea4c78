"""The spool as simply as it can be said: lists that are sorted anew at each step. For tests to compare with."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Happening", "played"]


@dataclass(frozen=True)
class Happening:
    """An arrival, a new rank of a message, a read, or a change of the link."""

    at_us: int
    what: str
    message: int = 0
    rank: float = 0.0
    expires_us: float = math.inf


def played(happenings, policy, most, threshold, *, starts_up=True):
    """Give what is forwarded, what is read, and how many lie on the device after each happening."""
    waiting, device, delayed = {}, {}, {}  # messages to (rank, expires, order)
    finished, forwarded, read, sizes = set(), [], [], []
    is_up, order, reads, untold = starts_up, 0, [], []

    def limit():
        if policy.kind not in ("buffer", "unified"):
            return 0
        if policy.prefetch_limit != "learnt":
            return policy.prefetch_limit
        last = [count for _, count in reads[-8:]]
        return 2 * sum(last) / len(last) if last else 0

    def between():
        times = [at for at, _ in reads[-8:]]
        return 0 if len(times) < 2 else round((times[-1] - times[0]) / (len(times) - 1) * 16.5 / 24)

    def best(of):
        return sorted(of, key=lambda each: (-of[each][0], of[each][2]))

    def forward():
        if not is_up:
            return
        if policy.kind == "on-line":
            room = math.inf
        else:
            room = limit() - len(device)
        able = {each: facts for each, facts in waiting.items() if not facts[3]}
        for each in best(able):
            if room <= 0:
                break
            room -= 1
            device[each] = waiting.pop(each)
            forwarded.append(each)

    def until(at_us):
        while True:
            due = [facts[1] for held in (waiting, device, delayed) for facts in held.values()]
            due += [facts[4] for facts in delayed.values()]
            soonest = min(due, default=math.inf)
            if soonest > at_us:
                return
            for held in (waiting, device, delayed):
                for each in [each for each, facts in held.items() if facts[1] <= soonest]:
                    del held[each]
                    finished.add(each)
            for each in [each for each, facts in delayed.items() if facts[4] <= soonest]:
                waiting[each] = delayed.pop(each)
            forward()

    for happening in happenings:
        at_us = happening.at_us
        until(at_us - 1 if happening.what == "switch" and is_up else at_us)
        match happening.what:
            case "arrival" | "rank":
                each, rank = happening.message, happening.rank
                held = next((held for held in (waiting, device, delayed) if each in held), None)
                if held is not None and rank < threshold:
                    del held[each]
                    finished.add(each)
                elif held is not None:
                    held[each] = (rank, *held[each][1:])
                elif each not in finished and rank >= threshold and happening.expires_us > at_us:
                    order += 1
                    least = policy.expiration_threshold_s
                    least_us = between() if least == "learnt" else None if least is None else least * 1e6
                    does_expire = happening.expires_us < math.inf
                    is_held = (
                        policy.kind != "on-line"
                        and least_us is not None
                        and does_expire
                        and (happening.expires_us - at_us < least_us)
                    )
                    facts = (rank, happening.expires_us, order, is_held, 0)
                    if policy.kind != "on-line" and policy.delay_s and not is_held:
                        delayed[each] = (*facts[:4], at_us + round(policy.delay_s * 1e6))
                    else:
                        waiting[each] = facts
                forward()
            case "read" if is_up:
                taken = best(waiting | device)[: None if most == math.inf else most]
                for each in taken:
                    if each in waiting:
                        forwarded.append(each)
                    waiting.pop(each, None)
                    device.pop(each, None)
                finished.update(taken)
                read += taken
                reads.append((at_us, len(taken)))
                forward()
            case "read":
                taken = best(device)[: None if most == math.inf else most]
                for each in taken:
                    del device[each]
                finished.update(taken)
                read += taken
                untold.append((at_us, len(taken)))
            case "switch":
                if not is_up:
                    reads += untold
                    untold = []
                is_up = not is_up
                forward()
        sizes.append(len(device))
    return forwarded, read, sizes
