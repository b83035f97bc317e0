"""What the richer models of the family cost beside their nearest relative, and cuts beside PyMaxflow.

    one data set     `LatentDynamicCRF`, `SemiMarkovCRF` and `KernelCRF` over `ChainCRF`: training and labelling on
                     the six worlds of `crfield experiment one-data-set`, each model with the penalty that does best
                     on the last third of the training sequences, as there; the median of the worlds. Beside it
                     training alone with l2 = 1 for all
    Spanish spans    `SemiMarkovCRF` on the names of CoNLL-2002 with features of tokens and the texts of segments, as
                     in `crfield experiment spanish-segments`, over `ChainCRF` on tags; CPU seconds of one training
    crosses          `GridCRF(objective="hinge")` on the crosses of `crfield experiment graph-defaults`, over the
                     default; CPU seconds
    cuts             `CutEngine` from scores to beliefs over PyMaxflow from the same scores to labels, 512 × 512
                     pixels of two labels; `ExpansionEngine` over its α-expansion, four labels. Both sides must find
                     labellings of the same score

CPU time, in turns, the best of each. PyMaxflow is no dependency of the project: the extra ``bench-cuts`` has it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.corpora import Bench
from benchmarks.table import Row, seconds
from benchmarks.timing import Timing, cpu, interleaved
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import CrfieldWarning
from crfield.estimators.graph.grid import GridCRF
from crfield.inference.graphs.cuts import CutEngine, ExpansionEngine
from crfield.inference.labellings import path_scores
from studies.graphs.graph_defaults import SETS
from studies.models import one_data_set
from studies.text import spanish_segments

MOST = {one_data_set.LATENT: 6.0, one_data_set.SEGMENTS: 6.0, one_data_set.KERNEL: 5.0}
SPANS_SECONDS, HINGE_SECONDS, CUTS = 300.0, 10.0, 1.0
MISSING = "PyMaxflow is not installed: pip install 'crfield[bench-cuts]'"


@dataclass(frozen=True, eq=False)
class World:
    """Sequences to learn from and to label, and the penalty each model takes for them."""

    name: str
    X: list[np.ndarray]
    y: Any
    new: list[np.ndarray]

    @classmethod
    def made(cls, name: str, *, n_sequences: int, n_test: int) -> World:
        """The world of the study's first seed."""
        switches = one_data_set.WORLDS[name]
        learn = one_data_set.make_episodes(n_sequences=n_sequences, random_state=0, **switches)
        test = one_data_set.make_episodes(n_sequences=n_test, random_state=10_000, **switches)
        return cls(name, list(learn.features), learn.labels, list(test.features))

    def penalty(self, model: str) -> float:
        """The one that does best on the last third."""
        inner = round(len(self.X) * (1 - one_data_set.HELD_OUT))
        shares = {}
        for l2 in one_data_set.PENALTIES:
            fitted = one_data_set.MODELS[model](l2, self.y[:inner], 0).fit(self.X[:inner], self.y[:inner])
            said = np.concatenate(list(fitted.predict(self.X[inner:])))
            shares[l2] = float((said == np.concatenate(list(self.y[inner:]))).mean())
        return max(shares, key=lambda l2: shares[l2])

    def whole(self, model: str, l2: float) -> None:
        """Training and labelling."""
        one_data_set.MODELS[model](l2, self.y, 0).fit(self.X, self.y).predict(self.new)

    def training(self, model: str, l2: float) -> None:
        """Training alone."""
        one_data_set.MODELS[model](l2, self.y, 0).fit(self.X, self.y)


def world_rows(bench: Bench) -> list[Row]:
    """The family on one data set."""
    sizes = {"n_sequences": 12, "n_test": 10} if bench.quick else {"n_sequences": 40, "n_test": 60}
    names, turns = (one_data_set.CRF, *MOST), 2 if bench.quick else 5
    found: dict[str, dict[str, list[float]]] = {what: {name: [] for name in names} for what in ("whole", "training")}
    for name in one_data_set.WORLDS:
        world = World.made(name, **sizes)
        chosen = {model: world.penalty(model) for model in names}
        for what in found:
            runs = [partial(getattr(world, what), m, chosen[m] if what == "whole" else 1.0) for m in names]
            for model, timing in zip(names, interleaved(*runs, turns=turns), strict=True):
                found[what][model].append(timing.best)
    return [_family_row(found, model, judged=not bench.quick) for model in MOST]


def _family_row(found: dict[str, dict[str, list[float]]], model: str, *, judged: bool) -> Row:
    ratios = {what: np.array(times[model]) / np.array(times[one_data_set.CRF]) for what, times in found.items()}
    each = ", ".join(f"{world} {x:.1f}" for world, x in zip(one_data_set.WORLDS, ratios["whole"]))
    return Row(
        f"relatives: {model} / CRF, one data set",
        float(np.median(ratios["whole"])),
        required=MOST[model] if judged else None,
        better="less",
        ours=seconds(float(np.sum(found["whole"][model]))),
        rival=seconds(float(np.sum(found["whole"][one_data_set.CRF]))),
        note=f"{each}; training alone with l2 = 1: {np.median(ratios['training']):.1f}×",
        detail={what: {world: float(x) for world, x in zip(one_data_set.WORLDS, r)} for what, r in ratios.items()},
    )


def _timed(fit: Callable[[], Any]) -> tuple[Any, Timing]:
    timing = Timing()
    with timing.turn(cpu):
        model = fit()
    return model, timing


def spans_row(bench: Bench) -> Row:
    """Names as segments with texts, one training."""
    name = "relatives: semi-Markov on Spanish spans, one training"
    if bench.data is None or not (bench.data / "conll2002").is_dir():
        return Row(name, None, unit="s", note="CRFIELD_DATA has no conll2002")
    train = spanish_segments.read_part(str(bench.data / "conll2002" / "esp.train.gz"), 300 if bench.quick else None)
    options = {"max_length": 10, "tol": 1e-3, "n_jobs": 1}
    chain, rival = _timed(lambda: spanish_segments._model(spanish_segments.CHAIN, **options).fit(train.X, train.y))
    model, ours = _timed(lambda: spanish_segments._model(spanish_segments.TEXTS, **options).fit(train.X, train.y))
    return Row(
        name,
        ours.best,
        unit="s",
        required=None if bench.quick else SPANS_SECONDS,
        better="less",
        ours=seconds(ours.best),
        rival=seconds(rival.best),
        note=f"{ours.best / rival.best:.1f}× ChainCRF on tags; {model.n_evaluations_} evaluations against "
        f"{chain.n_evaluations_}, objective {model.objective_:.6g}",
    )


def hinge_row(bench: Bench) -> Row:
    """The hinge on crosses beside the default."""
    make, n_train, n_test, options = SETS["crosses"]
    X, y = (some[:n_train] for some in make(n_train + n_test, np.random.default_rng(0)))
    plain, rival = _timed(lambda: GridCRF(**options).fit(X, y))
    model, ours = _timed(lambda: GridCRF(objective="hinge", **options).fit(X, y))
    return Row(
        "relatives: GridCRF with hinge on crosses",
        ours.best,
        unit="s",
        required=HINGE_SECONDS,
        better="less",
        ours=seconds(ours.best),
        rival=seconds(rival.best),
        note=f"{ours.best / rival.best:.1f}× the default ({plain.plan_.objective}); objective {model.objective_:.6g}",
    )


@dataclass(frozen=True, eq=False)
class Picture:
    """Scores of a grid of pixels whose neighbours attract alike."""

    size: int
    node: np.ndarray  # (size², L)
    coupling: float

    @classmethod
    def noisy(cls, size: int, labels: int, *, coupling: float = 1.0) -> Picture:
        """Tiles of labels under noise."""
        rng, at = np.random.default_rng(0), np.arange(size)
        truth = (np.add.outer(at // 37, at // 41) % labels).ravel()
        return cls(size, 1.5 * np.eye(labels)[truth] + rng.normal(size=(size * size, labels)), coupling)

    @property
    def potentials(self) -> Potentials:
        """As our engines read it."""
        number = np.arange(self.size**2).reshape(self.size, self.size)
        tails = np.concatenate([number[:, :-1].ravel(), number[:-1].ravel()])
        heads = np.concatenate([number[:, 1:].ravel(), number[1:].ravel()])
        labels = self.node.shape[1]
        graph = Graphs(np.array([0, self.size**2]), tails, heads)
        return Potentials(self.node, self.coupling * np.eye(labels)[None], graph)

    def two_labels(self, maxflow: Any) -> np.ndarray:
        """PyMaxflow's labels of two, from the scores."""
        shape = (self.size, self.size)
        graph = maxflow.Graph[float](self.size**2, 2 * self.size**2)
        nodes = graph.add_grid_nodes(shape)
        graph.add_grid_edges(nodes, self.coupling, symmetric=True)
        gain = (self.node[:, 1] - self.node[:, 0]).reshape(shape)
        graph.add_grid_tedges(nodes, np.maximum(gain, 0), np.maximum(-gain, 0))
        graph.maxflow()
        return np.asarray(~graph.get_grid_segments(nodes)).ravel().astype(np.int64)

    def more_labels(self, fastmin: Any) -> np.ndarray:
        """PyMaxflow's labels of several, by α-expansion from the best label of each pixel, as ours."""
        labels = self.node.shape[1]
        scores = -self.node.reshape(self.size, self.size, labels)
        first = self.node.argmax(axis=1).reshape(self.size, self.size)
        found = fastmin.aexpansion_grid(scores, self.coupling * (1 - np.eye(labels)), labels=first)
        return np.asarray(found).ravel().astype(np.int64)


def cut_rows(bench: Bench) -> list[Row]:
    """Cuts and expansions against PyMaxflow's."""
    sizes, turns = ((128, 128), 2) if bench.quick else ((512, 256), 7)
    names = [
        f"relatives: cut of {sizes[0]} × {sizes[0]} pixels / PyMaxflow",
        f"relatives: expansion, {sizes[1]} × {sizes[1]} pixels × 4 labels / PyMaxflow",
    ]
    try:
        maxflow, fastmin = import_module("maxflow"), import_module("maxflow.fastmin")
    except ImportError:
        return [Row(name, None, note=MISSING) for name in names]
    rows = []
    for name, labels, size, engine in zip(names, (2, 4), sizes, (CutEngine(), ExpansionEngine()), strict=True):
        picture = Picture.noisy(size, labels)
        scores = picture.potentials
        theirs = partial(picture.two_labels, maxflow) if labels == 2 else partial(picture.more_labels, fastmin)
        ours = partial(engine.infer, scores, Semiring.MAX)
        totals = float(ours().total[0]), float(path_scores(scores, theirs())[0])
        apart = abs(totals[0] / totals[1] - 1)
        if apart > (1e-12 if labels == 2 else 1e-4):
            raise RuntimeError(f"{name}: the scores of the labellings are {totals[0]:.12g} and {totals[1]:.12g}.")
        mine, rival = interleaved(ours, theirs, turns=turns)
        rows.append(
            Row(
                name,
                mine.best / rival.best,
                required=None if bench.quick else CUTS,
                better="less",
                ours=seconds(mine.best),
                rival=seconds(rival.best),
                note=f"medians {mine.median / rival.median:.2f}×; scores agree to {apart:.0e}",
            )
        )
    return rows


def run(bench: Bench) -> list[Row]:
    """All of the above."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrfieldWarning)
        return [*cut_rows(bench), hinge_row(bench), *world_rows(bench), spans_row(bench)]
