"""Displays of what a system installs on hosts."""

from __future__ import annotations

from mudkit import Lab
from mudkit.display import Displayed, View
from mudkit.systems.displays import qualified_name
from mudkit.systems.store_and_forward import Client, Relay


class Own(Displayed):
    """Object of a user's own system."""

    def _view(self) -> View:
        return View(qualified_name(self))


def test_object_of_a_system_of_ones_own_is_shown_by_its_class():
    assert Own()._view().name == "Own"


def test_objects_are_shown_by_their_system_address_state_and_open_calls():
    lab = Lab(seed=1)
    ann = Client(lab.device("ann"), Relay(lab))
    lab.run(seconds=10)
    view = ann._view()
    assert view.name == "store_and_forward.Client"
    assert (view.facts["at"], view.facts["state"]) == (ann.installed.address, ann.installed.state)
    assert view.facts["open calls"] is None
    lab.faults.cut("ann")
    for count in (1, 2):
        ann.send("bob", "hello")
        lab.run(seconds=1)
        assert ann._view().facts["open calls"] == count
