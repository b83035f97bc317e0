"""The page of all models: none is forgotten, each has a page and an example; and the world behind its table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield.errors import InputError
from crfield.report.model_catalogue import MODELS, as_markdown, example_of, model_named
from crfield.simulate.episodes import MEAN_LENGTHS, N_LABELS, make_episodes
from studies.models import one_data_set as study
from tests.cases.command_line import run, works

DOCS = Path(__file__).parents[2] / "docs"

# --------------------------------------------------------------------------------------------------------- the table


def test_every_model_is_in_the_table_once() -> None:
    values = {name: getattr(crfield, name) for name in crfield.__all__}
    public = [name for name, value in values.items() if isinstance(value, type) and hasattr(value, "predict")]
    # A search for penalties and a row of steps are no models of their own.
    models = [name for name in public if name not in ("ChainCRFCV", "Pipeline")]
    assert sorted(model.name for model in MODELS) == sorted(models)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_each_has_a_page_that_names_it_and_an_example(model: Any) -> None:
    assert model.name in (DOCS / model.page).read_text(encoding="utf-8")
    example = example_of(getattr(crfield, model.name))
    assert example.startswith(">>> ")
    assert model.name in example
    assert model.assumes
    assert model.take


def test_models_of_one_kind_stand_together() -> None:
    kinds = [model.labels for model in MODELS]
    changes = sum(one != other for one, other in pairwise(kinds))
    assert changes == len(set(kinds)) - 1


def test_the_page_shows_the_same_table() -> None:
    assert as_markdown() in (DOCS / "models.md").read_text(encoding="utf-8")


def test_the_verb_lists_all_and_shows_one() -> None:
    shown = works("models").stdout
    assert all(f"  {model.name}" in shown for model in MODELS)
    told = json.loads(works("models", "--json").stdout)
    assert [entry["name"] for entry in told["models"]] == [model.name for model in MODELS]
    one = works("models", "memm").stdout
    assert all(words in one for words in ("crfield.MEMM", "docs/methods/memm.md", ">>> "))
    assert json.loads(works("models", "MEMM", "--json").stdout)["example"] in one


def test_a_slip_of_the_pen() -> None:
    failed = run("models", "ChianCRF")
    assert failed.exit_code == 2
    with pytest.raises(InputError, match="Is ChainCRF meant"):
        model_named("ChianCRF")
    with pytest.raises(InputError, match="There are ChainCRF"):
        model_named("?")


# --------------------------------------------------------------------------------------------------------- the world


def paths(world: Any) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every path of states and log p(path, x) up to a constant, without the engine."""
    scores = world.potentials
    for path in product(range(len(world.start)), repeat=len(scores.node)):
        steps = scores.node[np.arange(len(path)), path].sum()
        yield path, float(steps + scores.edge[0][path[:-1], path[1:]].sum())


@pytest.mark.parametrize(
    "switches", [{}, {"phases": True}, {"rings": True, "copies": 2}], ids=["plain", "phases", "rings"]
)
def test_the_bayes_rule_is_that_of_enumeration(switches: dict[str, Any]) -> None:
    world = make_episodes(n_sequences=1, length=3, random_state=4, **switches)
    mass = np.zeros((3, N_LABELS))
    for path, score in paths(world):
        mass[np.arange(3), world.label_of[list(path)]] += np.exp(score)
    assert world.bayes_labels()[0].tolist() == mass.argmax(axis=1).tolist()


def test_rings_have_the_density_they_say() -> None:
    """The closed form against the mean over many places of the circle."""
    world = make_episodes(n_sequences=1, length=6, rings=True, random_state=2)
    angle = np.linspace(0, 2 * np.pi, 2001)[:-1]
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    first = world.potentials.node[1:, world.phase_of == 0]  # (5, L), one state for each label
    x = world.features[0][1:]
    wanted = [
        np.log(np.exp(-((x[:, None, 2:] - r * circle) ** 2).sum(axis=2) / (2 * world.noise**2)).mean(axis=1))
        for r in (0.5, 1.75, 3.0)
    ]
    gap = first - np.stack(wanted, axis=1)
    np.testing.assert_allclose(gap - gap[:, :1], 0, atol=1e-9)


@pytest.mark.parametrize("lengths", [False, True], ids=["free", "typical"])
def test_episodes_last_as_long_as_they_should(lengths: bool) -> None:
    world = make_episodes(n_sequences=1, length=20_000, lengths=lengths, random_state=1)
    np.testing.assert_allclose(world.transition.sum(axis=1), 1, atol=1e-12)
    changes = np.flatnonzero(np.diff(world.labels[0])) + 1
    lasted, label = np.diff(changes), world.labels[0][changes[:-1]]
    for number, mean in enumerate(MEAN_LENGTHS):
        own = lasted[label == number]
        assert own.mean() == pytest.approx(mean, rel=0.1)
        assert not lengths or set(own.tolist()) == {mean - 1, mean, mean + 1}


def test_copies_tell_nothing_new() -> None:
    once, often = (make_episodes(n_sequences=4, copies=copies, random_state=3) for copies in (1, 3))
    np.testing.assert_array_equal(often.features[2][:, :5], once.features[2])
    np.testing.assert_array_equal(often.features[2][:, 5:8], once.features[2][:, 2:5])
    assert [said.tolist() for said in often.bayes_labels()] == [said.tolist() for said in once.bayes_labels()]


@pytest.mark.parametrize("options", [{"length": 0}, {"copies": 0}, {"noise": 0.0}], ids=["length", "copies", "noise"])
def test_worlds_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        make_episodes(**options)
    assert make_episodes(n_sequences=0).bayes_labels() == []


# --------------------------------------------------------------------------------------------------------- the study


def test_special_models_pay_where_they_should() -> None:
    few = {name: study.MODELS[name] for name in (study.MARKOV, study.CRF, study.SEGMENTS)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "MODELS", few)
        patch.setattr(study, "PENALTIES", (1.0,))
        lengths, copies = (
            study.run({"n_sequences": 30, "n_test": 40}, {"world": world, "seed": 0})
            for world in ("lengths", "copies")
        )
    assert lengths[study.SEGMENTS]["right"] > lengths[study.CRF]["right"] + 0.02
    assert lengths[study.BAYES]["right"] > lengths[study.SEGMENTS]["right"]
    assert copies[study.CRF]["right"] > copies[study.MARKOV]["right"] + 0.02


def test_the_penalty_is_chosen_inside_the_training_part() -> None:
    """A model that is right on the held-out third only under one penalty, and is never shown the test part before."""
    seen: list[tuple[float, int, int]] = []

    class Spy:
        def __init__(self, penalty: float) -> None:
            self.penalty = penalty

        def fit(self, X: Any, y: Any) -> Spy:
            self.fitted = len(X)
            return self

        def predict(self, X: Any) -> list[np.ndarray]:
            seen.append((self.penalty, self.fitted, len(X)))
            return [np.full(len(x), int(self.penalty == 1.0)) for x in X]

    X, y = [np.zeros((4, 1))] * 9, [np.ones(4, int)] * 9
    found = study._run_model(lambda penalty, labels, seed: Spy(penalty), X, y, X[:5], y[:5], 0)
    assert seen == [*((penalty, 6, 3) for penalty in study.PENALTIES), (1.0, 9, 5)]
    assert found["right"] == found["f1"] == 1.0


def test_the_command_shows_every_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(settings: Any, case: Any) -> dict[str, dict[str, float]]:
        seed, names = case["seed"], [name for name in study.ROWS if study._runs_in(case["world"], name)]
        return {n: {"right": 0.5 + seed / 100, "f1": 0.25, "seconds": 2.0 if n == study.CRF else 3.0} for n in names}

    monkeypatch.setattr(study, "STUDY", replace(study.STUDY, run=fake))
    told = json.loads(works("experiment", "one-data-set", "--quick", "--json").stdout)
    assert [row["right steps"] for row in told["rows"]] == list(study.ROWS)
    by_name = {row["right steps"]: row for row in told["rows"]}
    assert by_name[study.MARKOV]["CPU"] == "1.5"
    assert by_name[study.CRF_SQUARES]["plain"] is None
    assert by_name[study.CRF_SQUARES]["rings"]["mean"] == pytest.approx(0.505)
    assert [claim["holds"] for claim in told["claims"]] == [True, True, *[False] * (len(told["claims"]) - 2)]
