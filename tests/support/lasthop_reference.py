"""Reference implementation of the spool: dictionaries that are sorted at each step."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class SpoolEvent:
    """Arrival of a message, change of a rank, read, or change of the link."""

    at_us: int
    what: str
    message: int = 0
    rank: float = 0.0
    expires_us: float = math.inf


def run_reference(happenings, policy, max_messages, threshold, *, starts_up=True):
    """Return the forwarded messages, the read ones, and the size of the device's queue after each event."""
    waiting, device, delayed = {}, {}, {}  # messages to (rank, expires, order)
    finished, forwarded, read, sizes = set(), [], [], []
    is_up, order, reads, offline_reads = starts_up, 0, [], []
    demands = []  # how many messages reads could use

    def compute_limit():
        if policy.kind not in ("buffer", "unified"):
            return 0
        if policy.prefetch_limit != "learnt":
            return policy.prefetch_limit
        last = demands[-8:]
        return 2 * sum(last) / len(last) if last else 0

    def compute_min_lifetime():
        times = [at for at, _ in reads[-8:]]
        return 0 if len(times) < 2 else round((times[-1] - times[0]) / (len(times) - 1) * 16.5 / 24)

    def sort_best(of):
        return sorted(of, key=lambda number: (-of[number][0], of[number][2]))

    def forward():
        if not is_up:
            return
        if policy.kind == "on-line":
            room = math.inf
        else:
            room = compute_limit() - len(device)
        candidates = {message: facts for message, facts in waiting.items() if not facts[3]}
        for message in sort_best(candidates):
            if room <= 0:
                break
            room -= 1
            device[message] = waiting.pop(message)
            forwarded.append(message)

    def advance(at_us):
        while True:
            due = [facts[1] for queue in (waiting, device, delayed) for facts in queue.values()]
            due += [facts[4] for facts in delayed.values()]
            next_us = min(due, default=math.inf)
            if next_us > at_us:
                return
            for queue in (waiting, device, delayed):
                for message in [message for message, facts in queue.items() if facts[1] <= next_us]:
                    del queue[message]
                    finished.add(message)
            for message in [message for message, facts in delayed.items() if facts[4] <= next_us]:
                waiting[message] = delayed.pop(message)
            forward()

    for happening in happenings:
        at_us = happening.at_us
        advance(at_us - 1 if happening.what == "switch" and is_up else at_us)
        match happening.what:
            case "arrival" | "rank":
                message, rank = happening.message, happening.rank
                queue = next((queue for queue in (waiting, device, delayed) if message in queue), None)
                if queue is not None and rank < threshold:
                    del queue[message]
                    finished.add(message)
                elif queue is not None:
                    queue[message] = (rank, *queue[message][1:])
                elif message not in finished and rank >= threshold and happening.expires_us > at_us:
                    order += 1
                    threshold_s = policy.expiration_threshold_s
                    min_lifetime_us = (
                        compute_min_lifetime()
                        if threshold_s == "learnt"
                        else None
                        if threshold_s is None
                        else threshold_s * 1e6
                    )
                    does_expire = happening.expires_us < math.inf
                    is_held_back = (
                        policy.kind != "on-line"
                        and min_lifetime_us is not None
                        and does_expire
                        and (happening.expires_us - at_us < min_lifetime_us)
                    )
                    facts = (rank, happening.expires_us, order, is_held_back, 0)
                    if policy.kind != "on-line" and policy.delay_s and not is_held_back:
                        delayed[message] = (*facts[:4], at_us + round(policy.delay_s * 1e6))
                    else:
                        waiting[message] = facts
                forward()
            case "read" if is_up:
                taken = sort_best(waiting | device)[: None if max_messages == math.inf else max_messages]
                for message in taken:
                    if message in waiting:
                        forwarded.append(message)
                    waiting.pop(message, None)
                    device.pop(message, None)
                finished.update(taken)
                read += taken
                reads.append((at_us, len(taken)))
                demands.append(len(taken))
                forward()
            case "read":
                taken = sort_best(device)[: None if max_messages == math.inf else max_messages]
                for message in taken:
                    del device[message]
                finished.update(taken)
                read += taken
                offline_reads.append((at_us, len(taken)))
            case "switch":
                is_up = not is_up
                if is_up and offline_reads:
                    reads += offline_reads
                    waits = len(waiting) + len(delayed)
                    demands += [max(count, min(max_messages, count + waits)) for _, count in offline_reads]
                    offline_reads = []
                    requested = len(waiting | device) if max_messages == math.inf else max_messages
                    for message in sort_best(waiting | device)[:requested] if policy.remembers_reads else ():
                        if message in waiting:
                            device[message] = waiting.pop(message)
                            forwarded.append(message)
                forward()
        sizes.append(len(device))
    return forwarded, read, sizes
