"""What the tolerance of training means: the true gap at the step where the estimate would have stopped.

Each run goes far beyond the default tolerance. Its history holds the estimated gap at every step, which does not
depend on the tolerance, so one run tells where every tolerance would have stopped it; proofs from planes do depend on
it, and can only come sooner. The least value that any run on the same data and penalty met stands for the optimum.
Where none of these came to an end the optimum is not known; such runs, which are the hardest, are left out and
counted. Kinds of data: text, numeric columns on one scale, and the same in raw units; penalties weak and strong,
with l1 and without; from zero, from stochastic epochs, and by primal–dual epochs, which are not for numeric columns.
Phrases, parts of speech and letters are of the data that the rule's factors were chosen on; Spanish names and
sensors are not.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import crfield
from benchmarks.corpora import FORM_TEMPLATE, WINDOWS, Bench, forms, template_of
from benchmarks.table import Row
from crfield.errors import ConvergenceWarning
from crfield.optimize.history import Step
from crfield.training.likelihood import FusedChain

PROMISED = 1e-4
TOLERANCES = (1e-3, PROMISED, 1e-5)
PENALTIES = ({"l2": 0.05}, {"l2": 1.0}, {"l2": 10.0}, {"l1": 1.0, "l2": 0.0}, {"l1": 0.5, "l2": 0.5})
SOLVERS = ("lbfgs", "warm", "primal_dual")
FAR = {"tol": 1e-7, "max_iter": 1000}


@dataclass(frozen=True, eq=False)
class Data:
    """Sequences, labels and what the estimator has to be told of them."""

    name: str
    X: Any
    y: Any
    options: dict[str, Any]


@dataclass(frozen=True)
class Stop:
    """Where a tolerance would have ended a run."""

    run: str
    gap: float  # true, relative
    step: int
    first: int | None  # the first step that was truly within


def sensors(sequences: int, *, raw: bool) -> Data:
    """Overlapping statistics of a noisy signal whose level follows five labels; raw: in counts around 2,000."""
    rng = np.random.default_rng(5)
    X, y = [], []
    for _ in range(sequences):
        labels = np.repeat(rng.integers(0, 5, 8), 5)
        window = rng.standard_normal((len(labels), 16)) * (1 + labels[:, None] % 3) + labels[:, None]
        step = np.abs(np.diff(window, axis=1)).mean(axis=1)
        columns = [window.mean(axis=1), window.std(axis=1), window.min(axis=1), window.max(axis=1), step]
        X.append(np.stack(columns, axis=1) * 60.0 + 2000.0)
        y.append(labels)
    name = "sensors, raw" if raw else "sensors"
    return Data(name, X, y, {"standardize": not raw})


def phrases(n: int) -> Data:
    """Ingredient phrases as feature dicts."""
    made = crfield.make_phrases(n)
    return Data(f"{n} phrases", [crfield.phrase_features(tokens) for tokens in made.tokens], made.labels, {})


def all_data(bench: Bench) -> Iterator[Data]:
    """Generated data, and parts of the real data that are there."""
    yield phrases(300 if bench.quick else 1000)
    yield sensors(60, raw=False)
    yield sensors(60, raw=True)
    if bench.quick or bench.data is None:
        return
    spanish = bench.data / "conll2002" / "esp.train.gz"
    if spanish.exists():
        X, y = crfield.read_columns(spanish).split_column(-1)
        yield Data("Spanish names", list(X)[:500], list(y)[:500], {"template": template_of(WINDOWS)})
    tagged = bench.data / "ewt" / "en_ewt-train.conllu.gz"
    if tagged.exists():
        yield parts_of_speech(tagged, 500)
    images = bench.data / "letters" / "letters.npz"
    if images.exists():
        with np.load(images) as held:
            pixels, codes, offsets = held["pixels"], held["labels"], held["offsets"].tolist()
        rows = np.unpackbits(pixels, axis=1)[:, :128].astype(float)
        words = [slice(a, b) for a, b in pairwise(offsets[:401])]
        yield Data("letters", [rows[word] for word in words], [codes[word] for word in words], {})


def parts_of_speech(path: Any, n: int) -> Data:
    """The first sentences of the English Web Treebank with UPOS labels."""
    words = forms(path, "upos").first(n)
    return Data("parts of speech", words.rows, words.tags, {"template": FORM_TEMPLATE})


def stops(data: Data, *, seeds: tuple[int, ...]) -> tuple[dict[float, list[Stop]], int]:
    """For each tolerance, the stops of all runs on these data; and how many were left out."""
    found: dict[float, list[Stop]] = {tolerance: [] for tolerance in TOLERANCES}
    left_out = 0
    for penalty in PENALTIES:
        runs = {}
        for solver in SOLVERS[: 2 if data.name.startswith("sensors") else 3]:
            for seed in (0,) if solver == "lbfgs" else seeds:
                model = crfield.ChainCRF(**penalty, **FAR, **data.options, solver=solver, random_state=seed, n_jobs=1)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    model.fit(data.X, data.y)
                runs[f"{data.name}, {penalty}, {solver}, seed {seed}"] = model.history_
        least = min(step.value for history in runs.values() for step in history)
        if not any(history[-1].gap <= FAR["tol"] for history in runs.values()):
            left_out += len(runs)
            continue
        for tolerance, listed in found.items():
            listed += [stop for name, history in runs.items() if (stop := stop_at(name, history, least, tolerance))]
    return found, left_out


def stop_at(name: str, history: list[Step], least: float, tolerance: float) -> Stop | None:
    """The first step whose estimate is within the tolerance; None if there is none."""
    ended = next((step for step in history if step.gap <= tolerance), None)
    if ended is None:
        return None
    within = (step.n_iter for step in history if step.value <= least * (1 + tolerance))
    return Stop(name, ended.value / least - 1, ended.n_iter, next(within, None))


def row(name: str, found: list[Stop], tolerance: float, left_out: int) -> Row:
    """Worst gap as a multiple of the tolerance, with the rest in the note."""
    if not found:
        return Row(name, None, note=f"no run of {left_out} came to an end")
    share = np.array([stop.gap for stop in found]) / tolerance
    worst = found[int(share.argmax())]
    cost = [stop.step / max(stop.first, 1) for stop in found if stop.first is not None]
    return Row(
        name,
        float(share.max()),
        unit="of tol",
        required=1.0 if tolerance == PROMISED else None,
        better="less",
        ours=f"{worst.gap:.1e}",
        note=f"{len(found)} runs, {int((share > 1).sum())} beyond, {left_out} left out; median "
        f"{np.median(share):.2f}, 95 % {np.quantile(share, 0.95):.2f} of the tolerance; {np.median(cost):.2f}× the "
        f"steps to the first within (median); worst: {worst.run}",
        detail={"gaps": share.tolist(), "steps": [stop.step for stop in found], "worst": worst.run},
    )


def with_planes(data: Data) -> Row:
    """Evaluations of L-BFGS to the default tolerance with planes that may prove it, as a share of those without.

    Intercepts without a penalty cannot be proved, so there are none.
    """
    natural, fits = FusedChain.planes_pay, []
    try:
        for pays in (natural, property(lambda _: False)):
            FusedChain.planes_pay = pays  # type: ignore[assignment, method-assign]
            model = crfield.ChainCRF(solver="lbfgs", tol=PROMISED, intercept=False, boundaries=False, **data.options)
            fits.append(model.fit(data.X, data.y))
    finally:
        FusedChain.planes_pay = natural  # type: ignore[method-assign]
    proved, estimated = fits
    return Row(
        f"stopping: {data.name}, evaluations with planes",
        proved.n_evaluations_ / estimated.n_evaluations_,
        unit="of those without",
        better="less",
        ours=str(proved.n_evaluations_),
        rival=str(estimated.n_evaluations_),
        note=f"objective {proved.objective_ / estimated.objective_ - 1:.0e} above",
    )


def run(bench: Bench) -> list[Row]:
    """A row for each kind of data at the default tolerance, and one for each tolerance over all of them."""
    rows, total, omitted = [], {tolerance: list[Stop]() for tolerance in TOLERANCES}, 0
    seeds = (0,) if bench.quick else tuple(range(6))
    for data in all_data(bench):
        found, left_out = stops(data, seeds=seeds)
        omitted += left_out
        rows.append(row(f"stopping: {data.name}, tolerance {PROMISED:.0e}", found[PROMISED], PROMISED, left_out))
        if not data.name.startswith("sensors"):
            rows.append(with_planes(data))
        for tolerance, listed in found.items():
            total[tolerance] += listed
    return rows + [row(f"stopping: all, tolerance {t:.0e}", listed, t, omitted) for t, listed in total.items()]
