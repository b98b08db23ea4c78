"""Any sequence of restores of access points and of the publish server: nothing comes twice, what is lost is named."""

from __future__ import annotations

from typing import Any

from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.systems.sublim import AccessPoint, Publisher, PublishServer, Subscriber

POINTS = ("access-point-1", "access-point-2")
HOSTS = (*POINTS, "publish-server", "monitor")
hosts = st.sampled_from(HOSTS)
steps = st.lists(
    st.tuples(
        st.one_of(
            st.tuples(st.just("publish"), st.none()),
            st.tuples(st.just("publish"), st.none()),
            st.tuples(st.just("move"), st.sampled_from([0, 1])),
            st.tuples(st.sampled_from(["cut", "mend"]), st.none()),
            st.tuples(st.just("back up"), hosts),
            st.tuples(st.just("restore"), st.integers(0, 5)),
            st.tuples(st.just("restart"), hosts),
        ),
        st.sampled_from([0.01, 0.5, 5.0, 40.0]),
    ),
    max_size=14,
)


class Walk:
    """A subscriber between two access points, and a monitor; each host is restored from its backups.

    The monitor publishes, or the server itself.
    """

    def __init__(self, *, is_on_device: bool = False) -> None:
        self.lab = Lab(seed=1)
        self.net = PublishServer(self.lab)
        for number, name in enumerate(POINTS):
            AccessPoint(self.lab, self.net, at=(number * 0.001, 0.0), range_m=80.0, name=name)
        self.device = self.lab.device("bob", link="wifi", at=(0.0, 0.0))
        monitor = Publisher(self.lab.device("monitor", link="wifi"), self.net)
        self.publisher = monitor if is_on_device else self.net
        self.backups: list[tuple[str, Any]] = []
        self.received: list[int] = []
        self.published = 0
        Subscriber(self.device, self.net).on_message(lambda message: self.received.append(message["n"]))
        self.lab.run(minutes=1)

    def do(self, action: str, argument: Any) -> None:
        faults = self.lab.faults
        match action:
            case "publish":
                self.publisher.publish({"n": self.published}).result()
                self.published += 1
            case "move":
                self.device.set_measured("loc", (argument * 0.001, 0.0))
            case "cut":
                faults.cut("bob")
            case "mend":
                faults.mend("bob")
            case "back up":
                self.backups.append((argument, faults.backup(argument)))
            case "restore" if self.backups:
                host, backup = self.backups[argument % len(self.backups)]
                faults.restore(host, backup)
            case "restart":
                faults.kill(argument)
                faults.restart(argument)

    def run(self, walk: Any) -> None:
        for (action, argument), wait_s in walk:
            self.do(action, argument)
            self.lab.run(seconds=wait_s)
        self.lab.faults.messages()
        self.lab.faults.mend("bob")
        self.lab.run(minutes=10)
        self.lab.faults.cut("bob", minutes=0.5)
        self.lab.run(minutes=5)
        self.do("publish", None)
        self.lab.run(minutes=5)


RESTORED_OLDER_THEN_NEWER = [
    (("cut", None), 40.0), (("back up", "publish-server"), 5.0), (("publish", None), 0.5),
    (("back up", "publish-server"), 40.0), (("mend", None), 40.0), (("restore", 0), 40.0), (("restore", 1), 5.0),
]  # fmt: skip
BACKED_UP_BEFORE_IT_IS_ATTACHED = [
    (("restart", "access-point-1"), 0.01), (("back up", "access-point-1"), 5.0), (("publish", None), 5.0),
    (("restore", 0), 40.0),
]  # fmt: skip
MOVED_AFTER_THE_RESTORE = [
    (("publish", None), 40.0), (("publish", None), 5.0), (("back up", "access-point-1"), 40.0),
    (("publish", None), 40.0), (("restore", 0), 0.01), (("restore", 0), 0.01), (("move", 1), 40.0),
]  # fmt: skip
LOST_BEFORE_IT_IS_DECIDED = [
    (("back up", "publish-server"), 5.0), (("restart", "access-point-1"), 0.01), (("cut", None), 0.01),
    (("publish", None), 5.0), (("restore", 0), 40.0),
]  # fmt: skip


@examples(150)
@given(steps, st.sampled_from([0.0, 0.3]), st.booleans())
@example(RESTORED_OLDER_THEN_NEWER, 0.0, False)
@example(BACKED_UP_BEFORE_IT_IS_ATTACHED, 0.0, False)
@example(MOVED_AFTER_THE_RESTORE, 0.0, False)
@example(LOST_BEFORE_IT_IS_DECIDED, 0.0, False)
@example(LOST_BEFORE_IT_IS_DECIDED, 0.0, True)
def test_restored_servers_repeat_nothing_and_losses_are_incidents(
    walk: Any, loss_share: float, is_on_device: bool
) -> None:
    place = Walk(is_on_device=is_on_device)
    place.lab.faults.messages(loss_share=loss_share)
    place.run(walk)
    assert place.received == sorted(set(place.received))
    assert place.received[-1] == place.published - 1
    is_lost = len(place.received) < place.published
    # What no other host has heard of when a server is restored, only the row of the restore can tell.
    incident = "restored" if loss_share else "rolled back"
    assert not is_lost or incident in place.lab.frame("incidents").incident.tolist()
