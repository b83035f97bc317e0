"""Weak learners in model files: both forms give back what was stored, and neither believes a damaged one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crfield.boosting.round_table import Round, RoundTable
from crfield.boosting.virtual_evidence.evidence import EvidenceTable
from crfield.boosting.weak_learners.state import learner_from_json, learner_to_json, steps_from_state, steps_state
from crfield.boosting.weak_learners.stumps import Categories, Stump
from crfield.boosting.weak_learners.trees import RegressionTree
from crfield.errors import InputError, ModelFileError
from crfield.storage.state import State

BARE = np.zeros((0, 0))
STUMP = Stump(1, np.inf, np.array([[0.5, -0.5], [-1.0, 1.0]]), 3.0, 0)
KINDS = Categories(0, np.array([1.0, 4.0]), np.arange(6.0).reshape(3, 2), 2.0)
TREE = RegressionTree(
    (Stump(2, 0.25, BARE, 1.5, 1), None, Categories(0, np.array([2.0]), BARE, 0.5), None, None),
    ((1, 2), (), (3, 4), (), ()),
    (-1, 0, -1, 2, 1),
    np.arange(6.0).reshape(3, 2),
    2.0,
)
TABLE = EvidenceTable("motion", np.ones((2, 2)), 1.0)
X = np.array([[1.0, 0.0, 0.0], [2.0, np.nan, 1.0], [4.0, 1.0, np.nan], [3.0, 1.0, 2.0]])


@pytest.mark.parametrize("learner", [STUMP, KINDS, TREE])
def test_learners_come_back_from_both_forms(learner: Any) -> None:
    flat = steps_from_state(steps_state((learner, learner), 2), 2, 3)
    assert [type(one) for one in flat] == [type(learner)] * 2
    for one in flat:
        np.testing.assert_array_equal(one.apply(X), learner.apply(X))  # type: ignore[union-attr]
        assert one.gain == learner.gain
    told = learner_from_json(learner_to_json(learner), 3, len(learner.values))
    np.testing.assert_array_equal(told.leaves(X), learner.leaves(X))
    with pytest.raises(ModelFileError, match="column that does not exist"):
        learner_from_json(learner_to_json(learner), learner_to_json(learner).get("column", 0), len(learner.values))
    with pytest.raises(ModelFileError):
        learner_from_json(learner_to_json(learner), 3, len(learner.values) + 1)


def test_evidence_is_found_by_its_place() -> None:
    state = steps_state((TABLE, STUMP), 2, ["place", "motion"])
    found = steps_from_state(state, 2, 3, {"place": 5, "motion": 2})
    assert isinstance(found[0], EvidenceTable)
    assert found[0].name == "motion"
    assert isinstance(found[1], Stump)
    for other in ({"place": 5}, {"place": 5, "motion": 3}):
        with pytest.raises(ModelFileError, match="evidence that is not there"):
            steps_from_state(state, 2, 3, other)


def test_a_step_that_is_code_is_refused() -> None:
    with pytest.raises(InputError, match="no code"):
        steps_state((object(),), 2)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("step/kind", 0, 1),
        ("step/kind", 2, 9),
        ("step/leaves", 0, -1),
        ("step/nodes", 0, 2),
        ("node/column", 0, 3),
        ("node/missing", 0, 2),
        ("node/threshold", 0, np.nan),
        ("node/leaf", 1, 1),
        ("children", 0, 0),
        ("children", 6, 4),
        ("categories", 1, 0.5),
        ("values", 0, np.inf),
    ],
)
def test_damaged_arrays_are_refused(name: str, place: int, value: float) -> None:
    state = steps_state((STUMP, KINDS, TREE), 2)
    array = state.arrays[name].copy()
    array[place] = value
    with pytest.raises(ModelFileError):
        steps_from_state(State({}, {**state.arrays, name: array}), 2, 3)


@pytest.mark.parametrize(
    "damage",
    [
        {"children": [[1, 2], [], [3, 3], [], []]},
        {"children": [[1, 2], [], [2, 4], [], []]},
        {"children": [[1, 2], [], [3, 5], [], []]},
        {"children": [[1, 2], [], [3, True], [], []]},
        {"children": [[1, 2], [], 3, [], []]},
        {"leaf": [-1, 0, -1, 2, 2]},
        {"leaf": [-1, 0, -1, 2, 1.0]},
        {"leaf": [-1, 0]},
        {"cuts": []},
        {"cuts": None},
    ],
)
def test_what_is_no_tree_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError):
        learner_from_json(learner_to_json(TREE) | damage, 3, 3)


@pytest.mark.parametrize(
    "told",
    [
        None,
        {},
        {"column": True, "threshold": 0.5, "missing": 1},
        {"column": 0, "threshold": "0.5", "missing": 1},
        {"column": 0, "threshold": 0.5, "missing": 2},
        {"column": 0, "categories": [2.0]},
        {"column": 0, "categories": ["a"]},
    ],
)
def test_what_is_no_cut_is_refused(told: Any) -> None:
    with pytest.raises(ModelFileError):
        learner_from_json(told, 3, 3)


def test_rounds_come_back_from_both_forms() -> None:
    table = RoundTable(
        [Round(1, "feature", "x[0] > 1", 2.5, 0.5, 0.75), Round(2, "relation", "+1", np.nan, kept=False)]
    )
    for again in (RoundTable.from_json(table.to_json()), RoundTable.from_state(table.state())):
        assert again == table
        assert again[0] == table[0]
        assert again[1].held_out is None
    for rows in (None, [[1, "a"]], [[1, "a", "b", "x", 0.0, None, True]]):
        with pytest.raises(ModelFileError, match="rounds"):
            RoundTable.from_json(rows)
    state = table.state()
    with pytest.raises(ModelFileError, match="rounds"):
        RoundTable.from_state(State({"rounds": [["a", "b", 1]]}, state.arrays))
