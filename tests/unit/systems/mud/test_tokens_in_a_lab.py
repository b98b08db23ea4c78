"""Who has no token, an expired one, or a new one; and what becomes of the writes that wait for it."""

from __future__ import annotations

import pytest
from mud_place import Place

from mudkit.errors import AccessDenied, ParameterError
from mudkit.systems.mud import Client, freshness
from mudkit.systems.mud.policies.policies import Later
from mudkit.wire import as_wire

FRESH = freshness(1e8)


@pytest.fixture
def ann(place):
    ann = place.client("ann", token=place.lab.token("ann", "news", hours=1e4))
    ann.create("news").result()
    return ann


def short(place, name="bob", hours=1.0, **more):
    return place.client(name, token=place.lab.token(name, "news", hours=hours), **more)


def restart(place, who):
    place.lab.faults.kill(who)
    place.lab.run(seconds=1)
    place.lab.faults.restart(who)
    place.lab.run(seconds=5)


# -- without one (3)


@pytest.mark.parametrize("acl", ["public", "app", "user"])
def test_nobody_creates_a_table_without_a_token(place, ann, acl):
    nobody = place.client("nobody", token=None)
    with pytest.raises(AccessDenied, match="only with a token"):
        nobody.create("mine", acl=acl).result()
    ann.create("mine", acl=acl).result()  # the name is free
    for attempt in (lambda: nobody.alter("mine", acl="public"), lambda: nobody.drop("mine")):
        with pytest.raises(AccessDenied):
            attempt().result()


# -- expired (3)


@pytest.mark.parametrize("kind", ["uncommitted", "committed", "committed_wio"])
@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("acl", ["public", "app", "user"])
def test_with_an_expired_token_nothing_is_read_from_here(place, ann, kind, is_restarted, acl):
    ann.create("t", acl=acl).result()
    ann.write("t", "k", {"x": 1}).result()
    bob = short(place)
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


# -- renewed (8)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_queued_writes_whose_token_has_expired_wait_for_another(place, ann, is_restarted):
    bob = short(place)
    bob.read("news").result()
    place.lab.faults.cut("bob")
    made = [bob.write("news", key, {"n": n}) for key, n in (("a", 1), ("a", 2), ("b", 1))]
    place.lab.run(hours=2)
    place.lab.faults.mend("bob")
    place.lab.run(hours=1)
    assert not any(each.done() for each in made)
    if is_restarted:
        restart(place, "bob")
    listed = bob.pending().result()
    assert [(each["key"], each["held"]) for each in listed] == [("a", "token"), ("a", None), ("b", "token")]
    assert ann.read("news", latest=True).result().records == {}
    bob.renew(place.lab.token("bob", "news", hours=10)).result()
    place.lab.run(minutes=1)
    assert bob.pending().result() == []
    if not is_restarted:
        assert [each.result() for each in made] == [1, 2, 1]
    result = ann.read("news", latest=True).result()
    assert (result.records, result.versions) == ({"a": {"n": 2}, "b": {"n": 1}}, {"a": 2, "b": 1})


def test_a_renewed_token_outlives_a_restart_and_is_what_is_read_with(place, ann):
    bob = short(place)
    ann.write("news", "a", {"n": 1}, predicate="auth.user = 'bob'").result()
    bob.read("news").result()
    bob.renew(place.lab.token("bob", "news", hours=100)).result()
    place.lab.run(hours=2)
    restart(place, "bob")
    assert set(bob.read("news", "key = 'a'", utility=FRESH).result().records) == {"a"}
    bob.write("news", "b", {"n": 1}).result()


def test_what_waits_for_a_token_is_sent_once(place, ann):
    """It was applied before the token expired; the answer was lost."""
    bob = short(place)
    bob.read("news").result()
    place.lab.run(seconds=3590 - place.lab.world.now_us / 1e6)
    place.lab.world.fault_hook = lambda each: () if as_wire(each.message)["kind"] == "outcome" else (0,)
    made = bob.write("news", "a", {"n": 1})
    place.lab.run(seconds=5)
    assert ann.read("news", latest=True).result().versions == {"a": 1}
    place.lab.run(minutes=5)
    place.lab.world.fault_hook = None
    bob.renew(place.lab.token("bob", "news", hours=10)).result()
    place.lab.run(minutes=1)
    assert made.result() == 1
    assert ann.read("news", latest=True).result().versions == {"a": 1}


def test_a_write_whose_token_expires_while_a_policy_delays_it_waits_for_another(place, ann):
    bob = short(place, write_policy=Later(7200))
    held = bob.write("news", "a", {"n": 1})
    place.lab.run(hours=3)
    assert [each["held"] for each in bob.pending().result()] == ["token"]
    bob.renew(place.lab.token("bob", "news", hours=10)).result()
    assert held.result() == 1


def test_a_read_that_waits_for_such_a_write_is_refused(place, ann):
    bob = short(place)
    bob.read("news").result()
    place.lab.faults.cut("bob")
    bob.write("news", "a", {"n": 1})
    made = bob.read("news", type="committed_wio")
    place.lab.run(hours=2)
    place.lab.faults.mend("bob")
    with pytest.raises(AccessDenied, match="expired"):
        made.result()
    bob.renew(place.lab.token("bob", "news", hours=10)).result()
    assert set(bob.read("news", type="committed_wio").result().records) == {"a"}


def test_only_a_valid_token_of_the_same_user_and_app_renews_one(place, ann):
    bob, lab = short(place), place.lab
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


def test_continuous_reads_go_on_with_the_token_that_they_are_registered_with_again(place, ann):
    """A continuous read ends with its token; with another one it is made again."""
    bob, answer = short(place), []
    bob.read("news", type="continuous", callback=answer.append).result()
    bob.renew(place.lab.token("bob", "news", hours=10)).result()
    place.lab.run(hours=2)
    ann.write("news", "a", {"n": 1}).result()
    place.lab.run(minutes=1)
    assert answer == [{"ended": "its token has expired"}]
    bob.read("news", type="continuous", callback=answer.append).result()
    ann.write("news", "b", {"n": 1}).result()
    place.lab.run(minutes=1)
    assert answer[-1].key == "b"


def test_a_write_that_is_refused_after_the_token_was_renewed_goes_at_once(place, ann):
    bob = short(place)
    begun_s = place.lab.world.now_us / 1e6
    bob.read("news").result()
    place.lab.run(seconds=begun_s + 3599.99 - place.lab.world.now_us / 1e6)
    written = bob.write("news", "a", {"n": 1})  # on its way with the old token
    place.lab.run(seconds=0.02)
    bob.renew(place.lab.token("bob", "news", hours=9)).result()
    assert not written.done()
    place.lab.run(minutes=1)
    assert written.result() == 1
