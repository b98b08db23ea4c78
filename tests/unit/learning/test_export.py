"""Exported trees: the document decides as scikit-learn does for all inputs."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from mudkit.errors import ParameterError
from mudkit.learning import delay_costs, export_policy
from mudkit.learning.batching import LearntWrites
from mudkit.learning.costs import CLASSES, CostMatrix
from mudkit.learning.features import FEATURE_SETS, WRITE_FEATURES
from mudkit.learning.policies import LearntReads
from mudkit.learning.trees import learn
from mudkit.systems.mud.policies.artefact import FEATURES, Artefact, Density

INPUTS = 1_000_000


def learn_reads(rows=4000, seed=1, features="extended", density=None):
    rng = np.random.default_rng(seed)
    known = rng.normal(0, 1, (rows, len(FEATURE_SETS[features]))).astype(np.float32)
    truth = (known[:, 6] + known[:, 7] * known[:, 0] + rng.normal(0, 0.3, rows) > 0).astype(np.int64)
    costs = CostMatrix(stale=2.0, unnecessary=1.0).table()
    return LearntReads(learn(known, truth, np.arange(rows) % 20, costs), features, costs, density)


def learn_writes(rows=4000, seed=2):
    rng = np.random.default_rng(seed)
    known = rng.uniform(0, 1, (rows, len(WRITE_FEATURES))).astype(np.float32)
    truth = np.minimum((known[:, 2] * 14 + rng.normal(0, 0.5, rows)).clip(0).astype(np.int64), 13)
    costs = delay_costs(0.3)
    return LearntWrites(learn(known, truth, np.arange(rows) % 20, costs), costs)


def learn_with_model(make):
    """Return what a function learns, and scikit-learn's model of all rows, which is fitted last."""
    models, fit = [], DecisionTreeClassifier.fit

    def fit_and_keep(model, *data):
        models.append(model)
        return fit(model, *data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecisionTreeClassifier, "fit", fit_and_keep)
        return make(), models[-1]


def draw_inputs(learnt, count, seed=3):
    """Draw random values, many of them at or next to thresholds, some unknown."""
    rng = np.random.default_rng(seed)
    grown = learnt.tree.grown
    inner = np.flatnonzero(grown.left >= 0)
    values = rng.normal(0, 1.5, (count, len(learnt.names)))
    node = rng.choice(inner, count)
    thresholds = grown.threshold[node]
    offset = rng.choice([-1e-9, -1e-15, 0.0, 1e-15, 1e-9], count)
    is_near = rng.random(count) < 0.5
    values[is_near, grown.feature[node[is_near]]] = (thresholds * (1 + offset))[is_near]
    values[rng.random(values.shape) < 0.02] = np.nan
    return values


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(("make", "count"), [(learn_reads, INPUTS), (learn_writes, INPUTS // 10)])
def test_export_decides_as_scikit_learn_on_a_million_inputs(make, count, scaled):
    """Compare a fifth of them in `make test`."""
    learnt, model = learn_with_model(make)
    shipped = export_policy(learnt, manifest={"seed": 1})
    values = draw_inputs(learnt, count // scaled(1, 5))
    by_sklearn = model.apply(values.astype(np.float32))
    assert np.array_equal(learnt.tree.grown.leaf_of(values.astype(np.float32)), by_sklearn)
    actions = shipped.document["actions"]
    number = {action: i for i, action in enumerate(actions)}
    decisions = np.array([number[shipped.decide(row)] for row in values.tolist()])
    assert np.array_equal(decisions, learnt.tree.action[by_sklearn])
    assert len(np.unique(decisions)) >= 2
    assert 2 <= shipped.document["manifest"]["leaves"] < model.tree_.n_leaves


FLOAT32 = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1e-45, -1e-45, 3.4028234663852886e38, -3.4028235677973366e38, 1e39, -1e39]),
)


@given(FLOAT32, st.integers(-2, 2), st.booleans())
def test_values_are_rounded_to_float32(threshold, steps, from_middle):
    """Decide next to a threshold, and next to the middle of its two float32 neighbours, where rounding turns."""
    value = threshold
    if from_middle:
        with np.errstate(over="ignore"):
            near = np.float32(threshold)
            value = (float(near) + float(np.nextafter(near, np.float32(np.inf)))) / 2
        if not math.isfinite(value):
            value = 2.0**128 - 2.0**103
    for _ in range(abs(steps)):
        value = math.nextafter(value, math.copysign(math.inf, steps))
    with np.errstate(over="ignore"):
        goes_left = float(np.float32(value)) <= threshold
    nodes = [[0, threshold, 1, 2, 2], [0], [1]]
    decision = Artefact.create("read", 1, ["age"], nodes, ["local", "remote"]).decide([value])
    assert decision == ("local" if goes_left else "remote")


def test_export_includes_the_density_table():
    table = Density(0.05, {(605, -1955): tuple(hour / 8 for hour in range(24)), (-1, 0): (0.5,) * 24})
    shipped = export_policy(learn_reads(features="dense", density=table))
    received = Artefact.from_document(json.loads(json.dumps(shipped.document)))
    assert received.features[-1] == "density"
    assert received.density == shipped.density == table
    assert [received.density.at(lat, -97.72, hour) for lat, hour in ((30.27, 9.99), (30.2, 9.99))] == [
        9 / 8,
        0,
    ]
    assert export_policy(learn_reads()).density is None
    with pytest.raises(ParameterError, match="no table"):
        export_policy(learn_reads(features="dense"))


def test_export_document_has_kind_version_actions_and_manifest():
    learnt = learn_writes()
    shipped = export_policy(learnt, 3, manifest={"trace": "a town"})
    assert Artefact.from_document(dict(shipped.document)).document == shipped.document
    assert (shipped.kind, shipped.version, shipped.features) == ("write", 3, WRITE_FEATURES)
    assert shipped.document["actions"] == [60.0 * delay for delay in CLASSES[:-1]] + ["never"]
    assert np.array_equal(shipped.document["costs"], learnt.costs)
    assert (
        shipped.document["manifest"] | {"trace": "a town", "examples": 4000} == shipped.document["manifest"]
    )
    assert {name for names in FEATURE_SETS.values() for name in names} <= {*FEATURES}
    with pytest.raises(ParameterError):
        export_policy(learnt, 0)
