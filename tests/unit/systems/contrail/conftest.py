"""Factory of labs for the tests of Contrail, with a search for secrets in all bytes that relays held."""

from __future__ import annotations

import pytest
from contrail_place import Place

from mudkit.errors import MudkitError
from mudkit.systems.contrail import Item


def search_in_clear(secrets):
    """Send the secrets without encryption, and return those that the same search finds."""
    place = Place("ann bob", encrypted=False)
    place.secrets = set(secrets)
    ann, bob = place.port("ann"), place.port("bob")
    bob.install_filter("TRUE", to=("ann", "app")).result()
    for text in sorted(secret for secret in secrets if isinstance(secret, str)):
        try:
            bob.install_filter(text, to=("ann", "app"))
        except MudkitError:  # not a filter, but a metadata value
            continue
    place.run(35)
    texts = {
        str(n): text for n, text in enumerate(sorted(secret for secret in secrets if isinstance(secret, str)))
    }
    ann.publish(Item(texts))
    for payload in sorted(secret for secret in secrets if isinstance(secret, bytes)):
        ann.publish(Item({}, payload))
    place.run(10)
    return place.seen_by_relays()


@pytest.fixture
def make_place():
    """Yield a factory of places; after the test, check that no relay has seen a secret (unencrypted: all).

    Then check the search itself: it must find all secrets when they are sent without encryption.
    """
    places = []

    def make(*args, **options):
        places.append(Place(*args, **options))
        return places[-1]

    yield make
    for place in places:
        seen = place.seen_by_relays()
        assert not seen if place.encrypted else seen == place.secrets
        assert search_in_clear(place.secrets) == place.secrets
