"""Rules of who may write, of tables and of records, in a lab (mudkit/systems/mud/tables/write_rules.py)."""

from __future__ import annotations

import pytest

from mudkit.errors import AccessDenied, ParameterError, PredicateError, TableProblem
from mudkit.systems import mud

OWNERS = "old IS NULL OR auth.user = old.owner"


@pytest.fixture
def people(place):
    """Return the clients of Ann, Bob and Eve, who have access to a table in which owners write."""
    clients = [place.client(name) for name in ("ann", "bob", "eve")]
    clients[0].create("t", acl="user", write_rule=OWNERS).result()
    return clients


@pytest.mark.parametrize("shown", [None, "auth.user = 'ann'"], ids=["shown", "hidden"])
def test_only_the_owner_overwrites_and_deletes(place, people, shown):
    ann, _, eve = people
    ann.write("t", "k", {"owner": "ann", "n": 1}, predicate=shown).result()
    for attempt in (
        lambda: eve.write("t", "k", {"owner": "eve"}),
        lambda: eve.write("t", "k", {"owner": "ann"}),
        lambda: eve.delete("t", "k"),
        lambda: eve.delete("t", "k", type="conditional"),
    ):
        with pytest.raises((AccessDenied, mud.Conflict)):
            attempt().result()
        assert ann.read("t", latest=True).result().records["k"] == {"owner": "ann", "n": 1}
    ann.write("t", "k", {"owner": "ann", "n": 2}).result()
    ann.delete("t", "k").result()
    assert ann.read("t", latest=True).result().records == {}
    eve.write("t", "k", {"owner": "eve"}).result()  # inserted: the record is hers now
    with pytest.raises(AccessDenied, match=r"may not write[\s\S]*user 'ann'[\s\S]*auth.user = old.owner"):
        ann.write("t", "k", {"owner": "ann"}).result()


def test_without_a_rule_all_whom_the_acl_admits_write_what_is_hidden_from_them(place):
    """Mobius 3.1 knows predicates of readers alone; the guide says so under Limits."""
    ann, eve = place.client("ann"), place.client("eve")
    ann.create("t").result()
    ann.write("t", "k", {"owner": "ann"}, predicate="auth.user = 'ann'").result()
    eve.delete("t", "k").result()
    assert ann.read("t", latest=True).result().records == {}


def test_writer_without_a_token_or_with_claims_of_its_own_is_not_admitted(place):
    ann = place.client("ann")
    ann.create("t", acl="public", write_rule=OWNERS).result()
    ann.write("t", "k", {"owner": "ann"}).result()
    stranger = place.client("stranger", token=None)
    with pytest.raises(AccessDenied, match="no token"):
        stranger.write("t", "k", {"owner": "ann"}, data={"user": "ann"}).result()


def test_rule_of_a_record_is_changed_by_those_whom_it_admits(place, people):
    ann, bob, eve = people
    ann.create("u", acl="user").result()
    ann.write(
        "u", "k", {"n": 1}, may_write=mud.rule("auth.user IN :editors", editors=["ann", "bob"])
    ).result()
    with pytest.raises(AccessDenied):
        eve.write("u", "k", {"n": 2}, may_write="TRUE").result()
    bob.write("u", "k", {"n": 3}).result()  # it goes on to hold
    with pytest.raises(AccessDenied):
        eve.write("u", "k", {"n": 4}).result()
    bob.write("u", "k", {"n": 5}, may_write="auth.user = 'eve'").result()
    with pytest.raises(AccessDenied):
        ann.write("u", "k", {"n": 6}).result()
    eve.delete("u", "k").result()
    ann.write("u", "k", {"n": 7}).result()  # a deleted record has no rule


def test_refusal_does_not_show_the_rule_of_a_record(place, people):
    """Keep secret what a writer hides (guarantees of the package); a table's own rule is no secret."""
    ann, _, eve = people
    ann.create("u", acl="user").result()
    ann.write("u", "k", {"n": 1}, predicate="auth.user = 'ann'", may_write="auth.user = 'zoe'").result()
    for client in (ann, eve):
        with pytest.raises(AccessDenied) as refused:
            client.write("u", "k", {"n": 2}).result()
        assert "zoe" not in str(refused.value)
        assert "the rule of this record" in str(refused.value)


def test_both_rules_must_admit_a_write(place, people):
    ann, bob, _ = people
    ann.write("t", "k", {"owner": "ann"}, may_write="auth.user = 'bob'").result()
    for client in (ann, bob):
        with pytest.raises(AccessDenied):
            client.write("t", "k", {"owner": "ann"}).result()


def test_rules_survive_a_restart_of_every_server_and_reach_no_client(place, people):
    ann, _, eve = people
    ann.create("u", acl="user").result()
    ann.write("u", "k", {"n": 1}, may_write="auth.user = 'ann'").result()
    for name, host in place.lab.world.hosts.items():
        if host.link is None:
            place.lab.faults.kill(name)
            place.lab.faults.restart(name)
    place.lab.run(minutes=1)
    changes = []
    eve.read("u", "n > 0", "continuous", callback=changes.append, sync_timestamp=0).result()
    ann.write("u", "k", {"n": 2}).result()
    place.lab.run(minutes=1)
    assert changes[-1].record == {"n": 2}
    assert "may_write" not in str(eve.read("u", latest=True).result().records)
    with pytest.raises(AccessDenied):
        eve.write("u", "k", {"n": 3}).result()


def test_rule_compares_what_was_with_what_comes(place):
    ann = place.client("ann")
    ann.create("t", write_rule="old IS NULL OR new IS NULL OR new.n = old.n + 1").result()
    ann.write("t", "k", {"n": 1}).result()
    with pytest.raises(AccessDenied):
        ann.write("t", "k", {"n": 3}).result()
    place.lab.faults.cut("ann", minutes=5)
    steps = [ann.write("t", "k", {"n": n}) for n in (2, 3, 4)]  # none is left out of the rule's sight
    assert [step.result() for step in steps] == [2, 3, 4]
    ann.delete("t", "k").result()


def test_rule_looks_up_what_the_writers_token_may_read(place):
    ann, bob = place.client("ann"), place.client("bob")
    ann.create("members", acl="user").result()
    ann.write("members", "bob", {"role": "editor"}, predicate="auth.user = 'bob'").result()
    ann.create("t", acl="user", write_rule="lookup('members', auth.user, 'role') = 'editor'").result()
    bob.write("t", "k", {"n": 1}).result()
    with pytest.raises(AccessDenied):
        ann.write("t", "k", {"n": 2}).result()


@pytest.mark.parametrize(
    ("rule", "error", "words"),
    [
        ("old IS", PredicateError, "IS"),
        ("owner = auth.user", PredicateError, r"old\.owner, new\.owner"),
        ("receiver.age > 3", PredicateError, "tokens prove"),
        ("sender.name = auth.user", PredicateError, "tokens prove"),
        ("auth.usr = 'ann'", PredicateError, "did you mean 'user'"),
        ("auth.user = 5", PredicateError, "different kinds"),
        ("old", PredicateError, "scope, not a value"),
        ("old = new", PredicateError, "scope, not a value"),
        ("lookup(old.table, auth.user, 'role') = 'x'", PredicateError, "must be a text"),
        ("lookup('nowhere', auth.user, 'role') = 'x'", TableProblem, "nowhere"),
        ("old.ownr = auth.user", PredicateError, "did you mean 'owner'"),
    ],
)
def test_rules_that_admit_nobody_are_refused(place, rule, error, words):
    ann = place.client("ann")
    with pytest.raises(error, match=words):
        ann.create("t", schema={"owner": "text", "n": "number"}, write_rule=rule).result()
    ann.create("u", schema={"owner": "text", "n": "number"}).result()
    with pytest.raises(error, match=words):
        ann.write("u", "k", {"n": 1}, may_write=rule).result()


def test_column_that_a_rule_reads_is_not_removed(place):
    ann = place.client("ann")
    ann.create("t", schema={"owner": "text", "n": "number"}, write_rule=OWNERS).result()
    with pytest.raises(ParameterError, match="'owner'"):
        ann.alter("t", remove=["owner"]).result()
    ann.alter("t", remove=["n"]).result()


def test_rule_that_fails_on_a_record_refuses(place):
    ann = place.client("ann")
    ann.create("t", write_rule="old IS NULL OR matches(auth.user, old.pattern)").result()
    ann.write("t", "k", {"pattern": "["}).result()
    with pytest.raises(AccessDenied):
        ann.delete("t", "k").result()


def test_table_on_a_device_has_no_rules(place):
    ann = place.client("ann")
    with pytest.raises(ParameterError, match="no write_rule"):
        ann.create("t", write_rule=OWNERS, where="device").result()
    ann.create("t", where="device").result()
    with pytest.raises(ParameterError, match="may_write"):
        ann.write("t", "k", {}, may_write=OWNERS).result()


def test_conflict_with_a_hidden_record_says_that_no_merge_helps(place):
    ann, eve = place.client("ann"), place.client("eve")
    ann.create("t").result()
    ann.write("t", "k", {"n": 1}, predicate="auth.user = 'ann'").result()
    with pytest.raises(
        mud.Conflict, match=r"may not see[\s\S]*a hidden record[\s\S]*no merge helps"
    ) as caught:
        eve.write("t", "k", {"n": 2}, type="conditional").result()
    assert caught.value.store is None


def test_conflict_of_a_write_whose_base_the_log_has_lost_speaks_of_no_hidden_record(place):
    ann = place.client("ann")
    ann.create("t").result()
    place.lab.faults.cut("ann", minutes=5)
    late = ann.write("t", "k", {"n": 1}, "conditional")
    local = ann.installed.machine.local
    (write,) = local.writes
    local.change_write(write, replaces=None)  # as after a restore of the back end
    with pytest.raises(mud.Conflict, match="not the one that this write was to replace") as caught:
        late.result()
    assert "may not see" not in str(caught.value)


def test_loop_of_conflicts_is_an_incident_and_says_wait(place):
    """A merge that writes what it read before is in conflict for ever; ten in a row are an incident."""
    ann, bob = place.client("ann"), place.client("bob")
    ann.create("t").result()
    errors = []
    for number in range(12):
        ann.write("t", "k", {"n": number}).result()
        with pytest.raises(mud.Conflict) as caught:
            bob.write("t", "k", {"n": -1}, type="conditional").result()
        errors.append(str(caught.value))
    incidents = place.lab.frame("incidents")
    assert incidents["incident"].tolist().count("conflicts in a row") == 1
    assert "merge the records" in errors[8]
    assert "wait before you write again: 10 conflicts in a row" in errors[9]
