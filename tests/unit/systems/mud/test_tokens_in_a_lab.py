"""Missing, expired, and renewed tokens, and writes that wait for a valid one."""

from __future__ import annotations

import pytest
from mud_place import Place

from mudkit.errors import AccessDenied, OperationTimeout, ParameterError
from mudkit.systems.mud import Client, freshness
from mudkit.systems.mud.policies.policies import Later
from mudkit.wire import as_wire

FRESH = freshness(1e8)


@pytest.fixture
def ann(place):
    ann = place.client("ann", token=place.lab.token("ann", "news", hours=1e4))
    ann.create("news").result()
    return ann


def create_client(place, name="bob", hours=1.0, **more):
    return place.client(name, token=place.lab.token(name, "news", hours=hours), **more)


def restart(place, host):
    place.lab.faults.kill(host)
    place.lab.run(seconds=1)
    place.lab.faults.restart(host)
    place.lab.run(seconds=5)


# -- no token (3)


@pytest.mark.parametrize("acl", ["public", "app", "user"])
def test_creating_a_table_requires_a_token(place, ann, acl):
    nobody = place.client("nobody", token=None)
    with pytest.raises(AccessDenied, match="only with a token"):
        nobody.create("mine", acl=acl).result()
    ann.create("mine", acl=acl).result()  # the name is free
    for attempt in (lambda: nobody.alter("mine", acl="public"), lambda: nobody.drop("mine")):
        with pytest.raises(AccessDenied):
            attempt().result()


# -- expired token (3)


@pytest.mark.parametrize("kind", ["uncommitted", "committed", "committed_wio"])
@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("acl", ["public", "app", "user"])
def test_expired_token_reads_nothing_locally(place, ann, kind, is_restarted, acl):
    ann.create("t", acl=acl).result()
    ann.write("t", "k", {"x": 1}).result()
    bob = create_client(place)
    bob.read("t").result()
    place.lab.faults.cut("bob")
    bob.write("t", "own", {"x": 2})
    place.lab.run(hours=2)
    if is_restarted:
        restart(place, "bob")
    for predicate in ("key = 'k'", "key = 'own'", "x > 0", None):
        with pytest.raises(AccessDenied, match="expired"):
            bob.read("t", predicate, kind, utility=FRESH).result()
    with pytest.raises(AccessDenied, match="expired"):
        bob.read("t", type="continuous").result()


# -- renewed token (8)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_queued_writes_with_expired_token_wait_for_another(place, ann, is_restarted):
    bob = create_client(place)
    bob.read("news").result()
    place.lab.faults.cut("bob")
    writes = [bob.write("news", key, {"n": n}, "conditional") for key, n in (("a", 1), ("a", 2), ("b", 1))]
    place.lab.run(hours=2)
    place.lab.faults.mend("bob")
    place.lab.run(hours=1)
    assert not any(write.done() for write in writes)
    if is_restarted:
        restart(place, "bob")
    listed = bob.pending().result()
    assert [(row["key"], row["held"]) for row in listed] == [("a", "token"), ("a", None), ("b", "token")]
    assert ann.read("news", latest=True).result().records == {}
    bob.renew(place.lab.token("bob", "news", hours=10)).result()
    place.lab.run(minutes=1)
    assert bob.pending().result() == []
    if not is_restarted:
        assert [write.result() for write in writes] == [1, 2, 1]
    result = ann.read("news", latest=True).result()
    assert (result.records, result.versions) == ({"a": {"n": 2}, "b": {"n": 1}}, {"a": 2, "b": 1})


@pytest.mark.parametrize("kind", ["blind", "conditional"])
def test_write_without_an_answer_says_that_it_waits_for_a_token(place, ann, kind):
    """The error names what was found and what to do; a network that is there needs no restoring."""
    bob = create_client(place)
    bob.read("news").result()
    place.lab.faults.cut("bob")
    writes = [bob.write("news", "a", {"n": number}, kind) for number in range(2)]
    for write in writes:
        with pytest.raises(OperationTimeout, match=r"(?s)has no network.*restore its network"):
            write.result(60)
    place.lab.run(hours=2)
    place.lab.faults.mend("bob")
    place.lab.run(minutes=1)
    for write in writes:
        with pytest.raises(OperationTimeout, match=r"(?s)has a network.*token .*has expired.*renew\(token\)"):
            write.result(60)
    bob.renew(place.lab.token("bob", "news", hours=10)).result()
    assert [write.result() for write in writes]


def test_renewed_token_survives_a_restart(place, ann):
    bob = create_client(place)
    ann.write("news", "a", {"n": 1}, predicate="auth.user = 'bob'").result()
    bob.read("news").result()
    bob.renew(place.lab.token("bob", "news", hours=100)).result()
    place.lab.run(hours=2)
    restart(place, "bob")
    assert set(bob.read("news", "key = 'a'", utility=FRESH).result().records) == {"a"}
    bob.write("news", "b", {"n": 1}).result()


def test_write_waiting_for_a_token_is_applied_once(place, ann):
    """Lose the answer of a write that was applied before the token expired."""
    bob = create_client(place)
    bob.read("news").result()
    place.lab.run(seconds=3590 - place.lab.world.now_us / 1e6)
    place.lab.world.fault_hook = lambda transfer: (
        () if as_wire(transfer.message)["kind"] == "outcome" else (0,)
    )
    write = bob.write("news", "a", {"n": 1})
    place.lab.run(seconds=5)
    assert ann.read("news", latest=True).result().versions == {"a": 1}
    place.lab.run(minutes=5)
    place.lab.world.fault_hook = None
    bob.renew(place.lab.token("bob", "news", hours=10)).result()
    place.lab.run(minutes=1)
    assert write.result() == 1
    assert ann.read("news", latest=True).result().versions == {"a": 1}


def test_delayed_write_with_expired_token_waits_for_another(place, ann):
    bob = create_client(place, write_policy=Later(7200))
    delayed = bob.write("news", "a", {"n": 1})
    place.lab.run(hours=3)
    assert [write["held"] for write in bob.pending().result()] == ["token"]
    bob.renew(place.lab.token("bob", "news", hours=10)).result()
    assert delayed.result() == 1


def test_read_waiting_for_write_with_expired_token_is_refused(place, ann):
    bob = create_client(place)
    bob.read("news").result()
    place.lab.faults.cut("bob")
    bob.write("news", "a", {"n": 1})
    read = bob.read("news", type="committed_wio")
    place.lab.run(hours=2)
    place.lab.faults.mend("bob")
    with pytest.raises(AccessDenied, match="expired"):
        read.result()
    bob.renew(place.lab.token("bob", "news", hours=10)).result()
    assert set(bob.read("news", type="committed_wio").result().records) == {"a"}


def test_only_a_valid_token_of_the_same_user_and_app_renews_one(place, ann):
    bob, lab = create_client(place), place.lab
    for token in (lab.token("eve", "news"), lab.token("bob", "bank"), lab.token(app="news")):
        with pytest.raises(ParameterError, match="another app or user"):
            bob.renew(token).result()
    for token in (lab.token("bob", "news", device="other"), lab.token("bob", "news", hours=1e-6)):
        lab.run(seconds=1)
        with pytest.raises(AccessDenied):
            bob.renew(token).result()
    for token in ("none", Place(seed=8).lab.token("bob", "news")):
        with pytest.raises(AccessDenied):
            bob.renew(token)
    with pytest.raises(ParameterError, match="parameter token"):
        bob.renew(None)
    with pytest.raises(ParameterError, match="no token"):
        place.client("nobody", token=None).renew(lab.token("nobody", "news")).result()
    app = Client(lab.device("app"), place.cloud, app="news", token=lab.token(app="news"))
    app.renew(lab.token(app="news", hours=50)).result()


def test_continuous_read_ends_with_its_token_despite_renewal(place, ann):
    """Register a new continuous read with the renewed token."""
    bob, changes = create_client(place), []
    bob.read("news", type="continuous", callback=changes.append).result()
    bob.renew(place.lab.token("bob", "news", hours=10)).result()
    place.lab.run(hours=2)
    ann.write("news", "a", {"n": 1}).result()
    place.lab.run(minutes=1)
    assert changes == [{"ended": "its token has expired"}]
    bob.read("news", type="continuous", callback=changes.append).result()
    ann.write("news", "b", {"n": 1}).result()
    place.lab.run(minutes=1)
    assert changes[-1].key == "b"


def test_write_refused_after_a_renewal_is_sent_again_at_once(place, ann):
    bob = create_client(place)
    begun_s = place.lab.world.now_us / 1e6
    bob.read("news").result()
    place.lab.run(seconds=begun_s + 3599.99 - place.lab.world.now_us / 1e6)
    written = bob.write("news", "a", {"n": 1})  # in flight with the old token
    place.lab.run(seconds=0.02)
    bob.renew(place.lab.token("bob", "news", hours=9)).result()
    assert not written.done()
    place.lab.run(minutes=1)
    assert written.result() == 1
