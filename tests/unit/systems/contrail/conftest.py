"""Every test of Contrail looks for everything that was private in everything that any relay ever held."""

from __future__ import annotations

import pytest
from contrail_place import Place

from mudkit.errors import MudkitError
from mudkit.systems.contrail import Item


def told_in_clear(secrets):
    """Send the same without encryption, and give what the same search finds of it."""
    there = Place("ann bob", encrypted=False)
    there.secrets = set(secrets)
    ann, bob = there.port("ann"), there.port("bob")
    bob.install_filter("TRUE", to=("ann", "app")).result()
    for text in sorted(each for each in secrets if isinstance(each, str)):
        try:
            bob.install_filter(text, to=("ann", "app"))
        except MudkitError:  # not a filter: the value of a metadata
            continue
    there.run(35)
    texts = {str(n): text for n, text in enumerate(sorted(each for each in secrets if isinstance(each, str)))}
    ann.publish(Item(texts))
    for payload in sorted(each for each in secrets if isinstance(each, bytes)):
        ann.publish(Item({}, payload))
    there.run(10)
    return there.seen_by_relays()


@pytest.fixture
def place():
    """Make places; when the test is over, no relay has seen anything (with encryption off: it has, all of it).

    And what was private is told once more without encryption: the search finds every bit of it.
    """
    made = []

    def make(*args, **more):
        made.append(Place(*args, **more))
        return made[-1]

    yield make
    for each in made:
        seen = each.seen_by_relays()
        assert not seen if each.encrypted else seen == each.secrets
        assert told_in_clear(each.secrets) == each.secrets
