"""Policy artefacts: validation of documents, decisions, densities, and display."""

from __future__ import annotations

import copy
import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import ParameterError
from mudkit.systems.mud.policies.artefact import (
    FEATURES,
    FORMAT,
    Artefact,
    Density,
    _upper_bound,
    question_text,
    sha256,
)

NODES = [[0, 600.0, 1, 2, 2], [1, 1.0, 3, 4, 4], [1], [0], [1]]


def create_artefact(**changes):
    arguments = {
        "kind": "read",
        "version": 1,
        "features": ["age", "distance"],
        "nodes": NODES,
        "actions": ["local", "remote"],
    }
    return Artefact.create(**(arguments | changes))


@pytest.mark.parametrize(("values", "action"), [
    ((599.0, 0.5), "local"), ((600.0, 1.0), "local"), ((600.1, 0.5), "remote"), ((10.0, 1.1), "remote"),
    ((10.0, None), "remote"), ((None, 0.5), "remote"), ((1e300, 0.5), "remote"), ((-1e300, 0.5), "local"),
])  # fmt: skip
def test_tree_decides(values, action):
    assert create_artefact().decide(values) == action


def test_tree_may_be_a_leaf():
    assert create_artefact(nodes=[[0]]).decide((1.0, 1.0)) == "local"
    delay = create_artefact(
        kind="write", features=["lat"], nodes=[[0, 30.0, 1, 2, 2], [0], [1]], actions=[600, "never"]
    )
    assert [delay.decide((lat,)) for lat in (29.0, 31.0, None)] == [600, "never", "never"]


def test_unknown_values_follow_the_given_child():
    for unknown, action in ((1, "local"), (2, "remote")):
        tree = create_artefact(nodes=[[0, 600.0, 1, 2, unknown], [0], [1]])
        decisions = [tree.decide((age, 0.0)) for age in (599.0, 601.0, None)]
        assert decisions == ["local", "remote", action]


def test_number_of_nodes_is_limited(monkeypatch):
    monkeypatch.setattr("mudkit.systems.mud.policies.artefact._MAX_NODES", len(NODES))
    create_artefact()
    with pytest.raises(ParameterError, match="a list of 1 to 5 nodes"):
        create_artefact(nodes=[*NODES, [0]])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("read", "local, remote, own"), ("write", "seconds from 0 to 1,000,000,000, never, own")],
)
def test_error_for_unknown_action_lists_the_valid_ones(kind, expected):
    with pytest.raises(ParameterError) as raised:
        create_artefact(kind=kind, actions=["later", "local"])
    assert raised.value.expected == expected


def test_artefacts_survive_json():
    document = json.loads(json.dumps(create_artefact(costs=[[0, 1], [5, 0]], manifest={"seed": 7}).document))
    assert Artefact.from_document(document) == create_artefact(costs=[[0, 1], [5, 0]], manifest={"seed": 7})


@pytest.mark.parametrize(
    "name", ["format", "kind", "version", "features", "nodes", "actions", "density", "costs", "manifest"]
)
def test_changed_or_missing_entries_are_refused(name):
    document = copy.deepcopy(dict(create_artefact().document))
    document[name] = 7 if name in ("format", "version") else [document[name]]
    with pytest.raises(ParameterError, match="policy is not usable"):
        Artefact.from_document(document)
    del document[name]
    with pytest.raises(ParameterError, match="policy is not usable"):
        Artefact.from_document(document)


@pytest.mark.parametrize(("changes", "where"), [
    ({"kind": "both"}, "kind"), ({"version": 0}, "version"), ({"version": True}, "version"),
    ({"features": ["age", "mood"]}, "features"), ({"actions": ["local", "later"]}, "actions"),
    ({"kind": "write", "actions": [-1, "never"]}, "actions"), ({"actions": ["local"]}, "nodes"),
    ({"nodes": []}, "nodes"), ({"nodes": [[0, 1.0, 1, 2, 2], [0]]}, "nodes"),
    ({"nodes": [[0, 1.0, 0, 1, 1], [0]]}, "nodes"), ({"nodes": [[2, 1.0, 1, 2, 2], [0], [1]]}, "nodes"),
    ({"nodes": [[0, 1.0, 1, 2, 0], [0], [1]]}, "nodes"), ({"nodes": [["0"]]}, "nodes"),
])  # fmt: skip
def test_unusable_artefacts_with_a_valid_digest_are_refused(changes, where):
    with pytest.raises(ParameterError) as raised:
        create_artefact(**changes)
    assert raised.value.where.startswith(where)


@pytest.mark.parametrize(
    "document", [None, [], "policy", {}, {"format": FORMAT}, {"format": FORMAT, "sha256": 0, 1j: {}}]
)
def test_values_other_than_documents_are_refused(document):
    with pytest.raises(ParameterError, match="policy is not usable"):
        Artefact.from_document(document)


def test_single_edited_characters_and_truncation_are_refused():
    original = create_artefact(costs=[[0, 1], [5, 0]], manifest={"seed": 7}).document
    text = json.dumps(original)
    refused = 0
    for index, character in enumerate(text):
        edited = text[:index] + ("7" if character != "7" else "8") + text[index + 1 :]
        try:
            document = json.loads(edited)
        except ValueError:
            continue
        if document == original:
            continue
        with pytest.raises(ParameterError, match="policy is not usable"):
            Artefact.from_document(document)
        refused += 1
    assert refused > 100
    for length in range(0, len(text), 7):  # a truncated text
        with pytest.raises(ParameterError, match="policy is not usable"):
            Artefact.from_document(text[:length])


def test_digest_ignores_the_order_of_entries():
    document = create_artefact().document
    assert sha256(document) == sha256(dict(reversed(document.items()))) == document["sha256"]


RATES = [0.0] * 24


@pytest.mark.parametrize("table", [
    [], {"cell_deg": 0.05}, {"cell_deg": 0, "cells": []}, {"cell_deg": True, "cells": []},
    {"cell_deg": 0.05, "cells": [], "unit": "points/h"}, {"cell_deg": 0.05, "cells": [[1, 2, RATES[1:]]]},
    {"cell_deg": 0.05, "cells": [[1, 2, [-1.0, *RATES[1:]]]]}, {"cell_deg": 0.05, "cells": [[1.5, 2, RATES]]},
    {"cell_deg": 0.05, "cells": [[1, 2, RATES], [1, 2, RATES]]}, {"cell_deg": "0.05", "cells": []},
    {"cell_deg": 0.05, "cells": [[1, 2, [float("1e999"), *RATES[1:]]]]}, {"cell_deg": 1e-10, "cells": []},
    {"cell_deg": 360.1, "cells": []}, {"cell_deg": 10**400, "cells": []},
    {"cell_deg": 0.05, "cells": [[1, 2, [10**400, *RATES[1:]]]]},
])  # fmt: skip
def test_malformed_density_tables_are_refused(table):
    document = dict(
        create_artefact(
            features=["density", "distance"], density=Density(0.05, {(1, 2): (0.5,) * 24})
        ).document
    )
    document["density"] = table
    with pytest.raises(ParameterError, match="policy is not usable") as raised:
        Density.from_document(table)
    assert raised.value.where.startswith("density")
    if "1e999" not in str(table) and "inf" not in str(table):
        document["sha256"] = sha256(document)
        with pytest.raises(ParameterError, match="policy is not usable"):
            Artefact.from_document(document)


def test_number_of_density_cells_is_limited(monkeypatch):
    monkeypatch.setattr("mudkit.systems.mud.policies.artefact._MAX_CELLS", 1)
    assert len(Density.from_document({"cell_deg": 1, "cells": [[1, 2, RATES]]}).cells) == 1
    with pytest.raises(ParameterError, match="at most 1"):
        Density.from_document({"cell_deg": 1, "cells": [[1, 2, RATES], [2, 2, RATES]]})


@pytest.mark.parametrize("cell_deg", [1e-9, 360])
def test_density_is_the_rate_of_the_cell_and_hour(cell_deg):
    rates = [0.0, *range(1, 23), sys.float_info.max]
    table = Density.from_document({"cell_deg": cell_deg, "cells": [[0, -1, rates]]})
    half = 0.5 * cell_deg
    assert [table.at(half, -half, hour) for hour in (0.5, 7.9, 23.9, 24.0)] == [0.0, 7.0, rates[-1], 0.0]
    assert table.at(half, half, 7.0) == 0.0
    assert Density.from_document(table.document()) == table


def test_density_table_and_feature_require_each_other():
    with pytest.raises(ParameterError, match="density"):
        create_artefact(density=Density(0.05, {}))
    with pytest.raises(ParameterError, match="density"):
        create_artefact(features=["age", "density"])


@pytest.mark.parametrize("changes", [
    {"nodes": [[0, 10**400, 1, 2, 2], [0], [1]]}, {"nodes": [[0, -(10**400), 1, 2, 2], [0], [1]]},
    {"kind": "write", "actions": [10**400, 1]},
], ids=["large", "negative", "action"])  # fmt: skip
def test_integers_beyond_the_range_of_floats_are_refused(changes):
    document = {**create_artefact().document, **changes}
    with pytest.raises(ParameterError, match="not usable") as raised:
        Artefact.from_document({**document, "sha256": sha256(document)})
    assert raised.value.where in ("nodes[0]", "actions")


@pytest.mark.parametrize("threshold", [sys.float_info.max, -sys.float_info.max])
def test_threshold_may_be_any_finite_float(threshold):
    assert create_artefact(nodes=[[0, threshold, 1, 2, 2], [0], [1]]).nodes[0][1] == threshold


def test_delay_is_limited():
    assert create_artefact(kind="write", nodes=[[0]], actions=[1e9]).decide(()) == 1e9
    with pytest.raises(ParameterError, match="seconds from 0 to 1,000,000,000"):
        create_artefact(kind="write", nodes=[[0]], actions=[1.1e9])


@pytest.mark.parametrize("feature", FEATURES)
def test_question_describes_every_feature_in_words(feature):
    assert feature not in question_text(feature, 6.5).split()


@pytest.mark.parametrize(
    ("feature", "threshold", "text"),
    [
        ("hour", 9.309, "time before 09:19"),
        ("cached_hour", 24, "the answer's time before 24:00"),
        ("weekday", 4.5, "Monday to Friday"),
        ("weekday", 0.5, "Monday"),
        ("distance", 1.25, "at most 1.25 km away"),
        ("distance", 0.0155, "at most 15.5 m away"),
        ("age", 7500, "at most 2 h 5 min old"),
        ("cached_lat", 37.75, "the answer's place south of 37.750°"),
    ],
)
def test_questions_use_everyday_units(feature, threshold, text):
    assert question_text(feature, threshold) == text


@pytest.mark.parametrize("questions", [3, 4])
def test_display_draws_three_levels_of_a_deep_tree(monkeypatch, questions):
    nodes = [
        node
        for number in range(questions)
        for node in ([0, 40.0 - number, 2 * number + 2, 2 * number + 1, 2 * number + 1], [1])
    ]
    drawn = []
    monkeypatch.setattr("mudkit.systems.mud.policies.artefact.tree", lambda root, _: drawn.append(root) or "")
    html = create_artefact(nodes=[*nodes, [0]])._repr_html_()
    branch = drawn[0].yes.yes.yes
    assert (branch.text, branch.note) == (("…", "at most 37 s old?") if questions == 4 else ("local", ""))
    assert ("Levels below the third are left out." in html) is (questions == 4)


@pytest.mark.parametrize(("max_counted", "leaves"), [(5, "leaves 3"), (4, "")])
def test_leaves_are_counted_up_to_a_maximum_number_of_nodes(monkeypatch, max_counted, leaves):
    monkeypatch.setattr("mudkit.systems.mud.policies.artefact._MAX_COUNTED", max_counted)
    assert ("leaves" in repr(create_artefact())) is bool(leaves)
    assert leaves in repr(create_artefact())


THRESHOLDS = [600.0, 1.0, float(np.float32(0.1)), 0.1]
near_thresholds = st.sampled_from(THRESHOLDS).flatmap(
    lambda t: st.sampled_from(
        [t, _upper_bound(t), np.nextafter(t, -np.inf), np.nextafter(t, np.inf), float(np.float32(t))]
    )
)


@given(st.sampled_from(THRESHOLDS), st.one_of(near_thresholds, st.floats(-1e6, 1e6)))
def test_values_are_compared_as_float32(threshold, value):
    """Round the value but not the threshold, as scikit-learn does."""
    tree = create_artefact(nodes=[[0, threshold, 1, 2, 2], [0], [1]])
    assert (tree.decide((float(value), 0.0)) == "local") == bool(np.float32(value) <= np.float64(threshold))
