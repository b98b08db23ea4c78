"""Cloud of a lab: its servers, arguments, and replica lag."""

from __future__ import annotations

import pytest
from mud_place import Place

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.systems.mud import Cloud


def test_cloud_has_the_requested_number_of_servers():
    lab = Lab(seed=7)
    cloud = Cloud(lab, replicas=0, gateways=1, processors=3, notification_servers=2)
    kinds = [name.rstrip("-0123456789") for name in lab.world.hosts]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "mud-store": 1,
        "mud-processor": 3,
        "mud-gateway": 1,
        "mud-policies": 1,
        "mud-notifications": 2,
        "mud-names": 1,
    }
    assert (len(cloud.replicas), len(cloud.gateways), len(cloud.processors)) == (0, 1, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [("replicas", -1), ("gateways", 0), ("processors", 1.5), ("notification_servers", True), ("replica_lag_s", -0.5),
     ("max_waiting", 0), ("max_wait_s", "an hour")],
)  # fmt: skip
def test_error_names_an_unusable_argument(name, value):
    lab = Lab(seed=7)
    with pytest.raises(ParameterError) as raised:
        Cloud(lab, **{name: value})
    assert raised.value.where == name
    assert not lab.world.hosts


def test_replica_lags_but_never_behind_versions_already_read():
    place = Place(replicas=1, replica_lag_s=100.0)
    jane, bob = place.client("jane"), place.client("bob")
    jane.create("news").result()
    place.lab.run(minutes=5)
    jane.write("news", "a", {"x": 1}).result()
    assert len(bob.read("news").result()) == 0
    assert len(jane.read("news").result()) == 1
    assert len(bob.read("news", latest=True).result()) == 1
    assert len(bob.read("news").result()) == 1
