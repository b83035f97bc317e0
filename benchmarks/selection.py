"""Selecting features of a game out of 2.7 million, and what refitting a few of them costs.

`soccer`: grafting over the candidates of `SOCCER` (two teams of five and a ball, 36,000 steps of the soccer world),
ten rounds of one feature each, in a fresh process whose peak memory is told. Its rival for the labels of games that
nobody has trained on has the positions and velocities of everybody, all weights, and a ridge chosen on the same
held-out game.

`refits`: one evaluation of the likelihood of 80 features with one weight each on 36,000 steps, against the fused
kernel with the same columns, dense (a weight for every label, most of them frozen) and sparse.

`tag`: processor time until the best round, of grafting and of the ℓ1 path, over the 1,200 features of Vail's thesis
(11 minutes of tag to train on, 12 held out, error on 13 others).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpora import Bench
from benchmarks.table import Row, ratio
from benchmarks.timing import interleaved

MEGABYTES = 2_000.0
PLAIN = """
position state : comp(pos(r),c) | for r in all, c in xy
velocity state : comp(vel(r),c) | for r in all, c in xy
"""
RIDGES = (1000.0, 100.0, 10.0, 1.0)


def soccer_figures(minutes: float, rounds: int) -> dict[str, Any]:
    """Errors, names, seconds and memory of this process."""
    import time

    from benchmarks.children import peak_megabytes
    from crfield import Recordings, Specification, make_soccer
    from crfield.core.target import Target
    from crfield.data.labels import LabelCoder
    from crfield.features.relational.examples import SOCCER
    from crfield.selection.methods.grafting import graft
    from crfield.selection.problem import SelectionProblem

    games = [make_soccer(minutes / 3, n_players=5, random_state=seed) for seed in (1, 2, 3)]
    held = [make_soccer(3.0, n_players=5, random_state=4)]
    unseen = [make_soccer(3.0, n_players=5, random_state=seed) for seed in (5, 6)]
    coder = LabelCoder().fit([game.labels for game in games])
    agents = games[0].agents
    teams = {side: [name for name in agents if name.startswith(side)] for side in ("us", "them")}

    def on(catalogue: Any, played: list[Any]) -> tuple[Any, Target]:
        columns = catalogue.on(Recordings.of([game.positions for game in played], rate=60.0))
        labels = coder.encode([game.labels for game in played], columns.chains.lengths)[0]
        return columns, Target(columns.chains, coder.n_labels, labels)

    def problems(text: str, **more: Any) -> tuple[SelectionProblem, SelectionProblem]:
        catalogue = Specification.parse(text).expand(labels=coder.labels, teams=teams, objects=["ball"])
        train = on(catalogue, games)
        one = SelectionProblem(*train, held_out=on(catalogue, held), **more)
        return one, SelectionProblem(*train, held_out=on(catalogue, unseen), scale=one.scale, **more)

    plain, plain_unseen = problems(PLAIN)
    model, rivals = None, []
    for ridge in RIDGES:
        model = plain.fit(np.arange(plain.n_candidates), model, l2=ridge)
        rivals.append((plain.held_out(model).error, plain_unseen.held_out(model).error))
    before = peak_megabytes()
    began = time.process_time()
    chosen, chosen_unseen = problems(SOCCER, min_count=20)
    path = graft(chosen, watch=lambda one: one.number >= rounds)
    taken = time.process_time() - began
    return {
        "candidates": chosen.n_candidates,
        "steps": chosen.n_steps,
        "seconds": taken,
        "megabytes": peak_megabytes(),
        "megabytes_before": before,
        "rival": min(rivals)[1],
        "error": chosen_unseen.held_out(path.best.model).error,
        "features": [name for one in path for name in one.added],
        "errors": [one.held_error for one in path],
    }


def soccer(bench: Bench) -> list[Row]:
    """Ten rounds over all candidates, in a process of their own."""
    minutes, rounds = (2.0, 4) if bench.quick else (10.0, 10)
    code = (
        "import json\nfrom benchmarks.selection import soccer_figures\n"
        f"print(json.dumps(soccer_figures({minutes}, {rounds})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    told = json.loads(done.stdout.strip().splitlines()[-1])
    what = f"{rounds} rounds of grafting, {told['candidates']:,} candidates × {told['steps']:,} steps"
    return [
        Row(
            f"selection: wrong labels in unseen games, positions and velocities over {what}",
            told["rival"] / told["error"],
            required=None if bench.quick else 1.0,
            ours=f"{100 * told['error']:.1f} %",
            rival=f"{100 * told['rival']:.1f} %",
            note=f"first: {told['features'][0]}",
            detail=told,
        ),
        Row(f"selection: peak memory of {what}", told["megabytes"], unit="MB", required=MEGABYTES, better="less"),
        Row(f"selection: processor time of {what}", told["seconds"], unit="s", better="less"),
    ]


def refits(bench: Bench) -> list[Row]:
    """One evaluation by link, and by the fused kernel."""
    from crfield.core.target import Target
    from crfield.core.topology import Chains
    from crfield.data.batch import Batch
    from crfield.features.lazy_columns import MatrixColumns
    from crfield.scoring.layout import Layout
    from crfield.selection.problem import SelectionProblem
    from crfield.training.likelihood import FusedChain

    steps, half, labels = (6_000 if bench.quick else 36_000), 40, 3
    rng = np.random.default_rng(0)
    chains = Chains.from_lengths([steps // 6] * 6)
    target = Target(chains, labels, np.repeat(rng.integers(0, labels, steps // 100), 100))
    numbers, tests = rng.normal(size=(steps, half)), (rng.random((steps, half)) < 0.3).astype(float)
    candidates = MatrixColumns(numbers, chains=chains, n_labels=labels, transition=tests)
    problem = SelectionProblem(candidates, target, standardize=False)
    linked = half * labels + labels**2 * np.arange(half) + np.arange(half) % labels**2
    active = np.concatenate([labels * np.arange(half) + np.arange(half) % labels, linked])
    ours = problem._active
    ours.use(active)
    at_edges = tests[chains.heads]
    pairs = np.arange(labels**2, dtype=np.int32)
    dense = FusedChain(
        Layout(n_labels=labels, n_dense=half, pairs=pairs, n_edge_dense=half),
        Batch(chains, _columns(numbers, dense=True), _columns(at_edges, dense=True)),
        target,
    )
    one_each = np.arange(half + 1)
    sparse = FusedChain(
        Layout(
            n_labels=labels,
            n_columns=half,
            feature_ptr=one_each,
            feature_label=(np.arange(half) % labels).astype(np.int32),
            pairs=pairs,
            n_edge_columns=half,
            edge_ptr=one_each,
            edge_pair=(np.arange(half) % labels**2).astype(np.int32),
        ),
        Batch(chains, _columns(numbers), _columns(at_edges)),
        target,
    )
    turns = [
        lambda one=one: one.evaluate(np.zeros(one.n_weights), np.empty(one.n_weights))
        for one in (ours, dense, sparse)
    ]
    timings = interleaved(*turns, turns=3 if bench.quick else 7)
    what = f"{2 * half} features with one weight each, {steps:,} steps"
    return [
        ratio(f"selection: likelihood of {what}, over the fused kernel, dense", timings[0], timings[1]),
        ratio(f"selection: likelihood of {what}, over the fused kernel, sparse", timings[0], timings[2]),
    ]


def _columns(values: np.ndarray, *, dense: bool = False) -> Any:
    from scipy.sparse import csr_array

    from crfield.data.batch import Columns

    if dense:
        return Columns(np.zeros(len(values) + 1), np.zeros(0), 0, dense=values)
    rows = csr_array(values)
    return Columns(rows.indptr, rows.indices, values.shape[1], rows.data)


def tag(bench: Bench) -> list[Row]:
    """Seconds to the best round over the 1,200 features of tag."""
    from crfield import Recordings, Specification, make_tag
    from crfield.core.target import Target
    from crfield.features.relational.examples import TAG_LARGE
    from crfield.selection.methods.grafting import graft
    from crfield.selection.methods.l1_path import l1_path
    from crfield.selection.problem import SelectionProblem

    catalogue = Specification.parse(TAG_LARGE).expand(labels=3, agents=3)

    def game(minutes: float, seed: int) -> tuple[Any, Target]:
        played = make_tag(minutes, scheme="hourglass", random_state=seed)
        columns = catalogue.on(Recordings.of([played.positions], rate=played.rate))
        return columns, Target(columns.chains, 3, played.labels)

    lengths = (2.0, 2.0, 2.0) if bench.quick else (11.0, 12.0, 13.0)
    train, held, unseen = (game(minutes, seed) for seed, minutes in enumerate(lengths, 1))
    rows = []
    for name, method, options in (
        ("grafting, one a round", graft, {"m": 1}),
        ("grafting, eight a round", graft, {"m": 8, "patience": 5}),
        ("the ℓ1 path", l1_path, {}),
    ):
        problem = SelectionProblem(*train, held_out=held)
        path = method(problem, **options)
        other = SelectionProblem(*train, held_out=unseen, scale=problem.scale)
        error = other.held_out(path.best.model).error
        rows.append(
            Row(
                f"selection: tag, {problem.n_candidates:,} × {problem.n_steps:,} steps, {name}, to its best",
                path.best.seconds,
                unit="s",
                better="less",
                ours=f"{100 * error:.1f} % wrong",
                note=f"{path.best.n_features} features",
                detail={"seconds_in_all": path[-1].seconds, "held_error": path.best.held_error, "rounds": len(path)},
            )
        )
    return rows


def run(bench: Bench) -> list[Row]:
    """All of them."""
    return [*soccer(bench), *refits(bench), *tag(bench)]
