"""Notifications that are stored until the application has been notified."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mudkit.delivery.notices import FieldsWithId, Notices
from mudkit.events import Notify, SetTimer
from mudkit.fleet.store import MemoryStore

TIMER = SetTimer(Notices.TIMER, 0)


class Text(msgspec.Struct, frozen=True):
    text: str


def notify(notice: Text) -> Notify:
    return Notify("app", notice.text)


def test_notice_is_repeated_at_each_start_until_its_effects_were_carried_out() -> None:
    store = MemoryStore()
    notices = Notices(store, Text)
    assert [notices.add(Text("one")), notices.add(Text("two"))] == [TIMER, TIMER]
    assert notices.repeat(notify) == ()
    for _ in range(2):  # killed after the commit, twice
        notices = Notices(store, Text)
        assert notices.repeat(notify) == [Notify("app", "one"), Notify("app", "two"), TIMER]
        assert notices.repeat(notify) == ()
    assert [key for key, _ in store.items()] == ["notice 000000000001", "notice 000000000002"]
    notices.clear()
    assert Notices(store, Text).repeat(notify) == ()
    assert not store.items()
    notices.add(Text("three"))
    assert [key for key, _ in store.items()] == ["notice 000000000001"]


def test_identified_mapping_equals_a_plain_one() -> None:
    mapping = FieldsWithId({"n": 1}, "seven")
    assert (mapping, mapping.id, repr(mapping)) == ({"n": 1}, "seven", "{'n': 1}")


@given(st.lists(st.sampled_from(["add", "fire", "kill before the effects", "kill"])))
def test_each_notice_is_emitted_once_except_across_a_kill(steps: list[str]) -> None:
    store, emitted, repeatable = MemoryStore(), [], set()
    notices = Notices(store, Text)
    added: list[str] = []
    for step in steps:
        if step in ("add", "kill before the effects"):
            added.append(f"text {len(added)}")
            notices.add(Text(added[-1]))
            if step == "add":
                emitted.append(added[-1])
        elif step == "fire":
            notices.clear()
            assert not store.items()
        if step.startswith("kill"):
            repeatable |= {item.text for _, item in store.items("notice ", Text)}
            notices = Notices(store, Text)
            emitted += [effect.payload for effect in notices.repeat(notify) if isinstance(effect, Notify)]
    assert set(emitted) == set(added)
    assert {text for text in emitted if emitted.count(text) > 1} <= repeatable
