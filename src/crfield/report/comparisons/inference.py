"""Is the model wrong, or the inference? One model, all engines, one table.

A model whose answers are bad may be a bad model, or a good one that was asked badly: mean field on a grid is the
usual example, and its failures have been taken for those of the model. The way out is to hold the scores fixed and
to change the engine. If even the exact answer is bad, the model is at fault; if it is good and another engine's is
bad, that engine is. Where no exact engine can be run, engines that agree, and bounds on log Z that meet, say nearly
as much.

Each engine is asked twice. Under LOG it gives marginals, so labels chosen node by node (MPM) and a log Z; under MAX a
labelling as a whole (MAP) and its score. An engine that answers only one of the two leaves the other's cells empty;
one that refuses both has its reason below the table. Seconds are CPU time of this process for both questions.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import CrfieldError, CrfieldWarning, InputError, ShapeError
from crfield.inference.decode import best_marginals
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.graphs.catalogue import ENGINES, Engine, choose_engine, engine_class, engine_named
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.report.alignment import pad
from crfield.report.comparisons.verdict import verdict

_MOST_ENUMERATED = 200_000  # labellings; the oracle writes each of them out
_MARKS = {"exact": "=", "upper": "≤", "lower": "≥", "estimate": "≈"}
_REFERENCE_BUDGET = 2**26  # bytes for an exact engine that nobody asked for
_NONE = "·"


@dataclass(frozen=True)
class InferenceRow:
    """What one engine made of the scores; None where it gave no answer or there is nothing to compare with.

    ``total`` and ``map_score`` are sums over all graphs. ``total_gap`` is the total minus the exact one, so it is
    positive for an upper bound; ``map_gap`` is the best score that any engine found minus this one's. ``loss`` is the
    accuracy of the exact answer minus the engine's own, with marginals both node by node, otherwise both as a whole;
    ``loss_error`` is its standard error from the nodes on which the two differ, as if nodes were independent.
    """

    name: str
    exact: bool | None = None  # whether the engine vouches for its marginals
    mpm_accuracy: float | None = None
    map_accuracy: float | None = None
    loss: float | None = None
    loss_error: float | None = None
    mean_error: float | None = None  # of node marginals, over the labels that a node has
    max_error: float | None = None
    total: float | None = None
    bound: str | None = None  # "exact", "upper", "lower" or "estimate"
    total_gap: float | None = None
    map_score: float | None = None
    map_exact: bool | None = None
    map_gap: float | None = None
    converged: bool | None = None
    sweeps: int | None = None
    seconds: float | None = None
    reason: str = ""  # why the engine was not run or refused

    @property
    def ran(self) -> bool:
        """Whether it answered at least one of the two questions."""
        return not self.reason


@dataclass(frozen=True, eq=False, repr=False)
class InferenceComparison(ShownAsTables):
    """A row for each engine, the marginals they found, and what follows from them.

    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.log([[1.0, 3.0], [1.0, 1.0]]), np.log([[[2.0, 1.0], [1.0, 2.0]]]),
    ...     Chains.from_lengths([2]))
    >>> comparison = compare_inference(scores, truth=np.array([1, 1]), engines=["chain", "brute"])
    >>> [(row.name, row.mpm_accuracy, round(row.total, 6), row.bound) for row in comparison.rows]
    [('chain', 1.0, 2.484907, 'exact'), ('brute', 1.0, 2.484907, 'exact')]
    >>> comparison["brute"].max_error < 1e-12, comparison.reference
    (True, 'chain')
    """

    rows: tuple[InferenceRow, ...]
    reference: str | None  # the exact engine that the others are measured against
    n_graphs: int
    n_nodes: int
    n_edges: int
    n_labels: int
    n_judged: int  # nodes whose true label is known
    marginals: Mapping[str, np.ndarray] = field(default_factory=dict)  # (N, L) of each engine that has some

    def __getitem__(self, name: str) -> InferenceRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise InputError(f"the comparison has no engine {name!r}; it has {', '.join(row.name for row in self.rows)}.")

    @property
    def verdict(self) -> str:
        """Whether the model or the inference is to blame, as a sentence or two."""
        return verdict(self.rows, self.reference)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the marginals, ready for JSON; numbers that are not finite become None."""
        return {
            "graphs": self.n_graphs,
            "nodes": self.n_nodes,
            "edges": self.n_edges,
            "labels": self.n_labels,
            "judged": self.n_judged,
            "reference": self.reference,
            "verdict": self.verdict,
            "engines": [{name: _finite(value) for name, value in asdict(row).items()} for row in self.rows],
        }

    def _columns(self) -> list[tuple[str, list[str]]]:
        """Heads and cells of the engines that ran, without columns that are empty."""
        shown = [row for row in self.rows if row.ran]
        columns = [
            ("engine", [row.name for row in shown]),
            ("MPM", [_share(row.mpm_accuracy) for row in shown]),
            ("MAP", [_share(row.map_accuracy) for row in shown]),
            ("mean error", [_small(row.mean_error) for row in shown]),
            ("max error", [_small(row.max_error) for row in shown]),
            ("log Z", [_total(row) for row in shown]),
            ("gap", [_gap(row.total_gap, sign=True) for row in shown]),
            ("MAP score", [_NONE if row.map_score is None else f"{row.map_score:.4f}" for row in shown]),
            ("gap", [_gap(row.map_gap, sign=False) for row in shown]),
            ("converged", ["yes" if row.converged else "no" for row in shown]),
            ("sweeps", [_NONE if row.sweeps is None else f"{row.sweeps:,}" for row in shown]),
            ("CPU s", [_NONE if row.seconds is None else f"{row.seconds:.3f}" for row in shown]),
        ]
        return [column for column in columns if any(cell != _NONE for cell in column[1])]

    def table(self) -> str:
        """The engines that ran, aligned; signs say what log Z is: exact =, upper ≤, lower ≥ bound, estimate ≈."""
        columns = self._columns()
        widths = [max(map(len, [head, *cells])) for head, cells in columns]
        lines = [
            "  ".join(pad(text, wide, right=k > 0) for k, (text, wide) in enumerate(zip(line, widths))).rstrip()
            for line in zip(*([head, *cells] for head, cells in columns))
        ]
        return "\n".join(lines)

    def _tables(self) -> list[Table]:
        columns = self._columns()
        rows = list(zip(*(cells for _, cells in columns)))
        return [Table([head for head, _ in columns], rows, title=self._headline(), note=self.verdict)]

    def _headline(self) -> str:
        return (
            f"{self.n_graphs:,} {'graph' if self.n_graphs == 1 else 'graphs'}, {self.n_nodes:,} nodes, "
            f"{self.n_edges:,} edges, {self.n_labels} labels; "
            + (f"{self.n_judged:,} nodes judged" if self.n_judged else "no truth given")
        )

    def __str__(self) -> str:
        head = self._headline()
        refused = [f"{row.name}: {row.reason}" for row in self.rows if not row.ran]
        parts = [head, self.table()]
        if refused:
            parts.append("not run\n" + "\n".join(f"  {line}" for line in refused))
        return "\n\n".join([*parts, self.verdict])

    __repr__ = __str__


class Judged(Protocol):
    """A fitted model of chains or graphs."""

    def _judged(self, X: Any, y: Any) -> tuple[Potentials, np.ndarray | None]:
        """Scores of X, and codes (N,) of the labels y, −1 where unknown; None without any."""
        ...


def compare_inference(
    potentials: Potentials | Judged,
    X: Any = None,
    y: Any = None,
    *,
    truth: Any = None,
    engines: Sequence[str | Engine] | Mapping[str, Engine] | None = None,
    time_limit: float = 60.0,
    n_jobs: int = 1,
) -> InferenceComparison:
    """Run engines on the same scores and compare their answers with the exact ones and with the truth.

    ``compare_inference(model, X, y)`` asks about a fitted model of chains or graphs; ``y`` may be left out, and may
    have unknown labels as in ``fit``. Or ``compare_inference(scores, truth=codes)`` about `Potentials`, where codes
    (N,) are of labels: negative ones are not judged, and a code that no label has is never right.

    ``engines`` are names, objects, or objects under names of your own; by default everything in the catalogue. If
    none of them turns out to be exact but an exact engine can be had (`choose_engine`), it is added. Engines cannot
    be interrupted, so ``time_limit`` (CPU seconds) only keeps further ones from being started.

    >>> from crfield import ChainCRF
    >>> X, y = [[["x"], ["z"], ["z"]], [["x"], ["x"]]], [["a", "b", "b"], ["a", "a"]]
    >>> compare_inference(ChainCRF().fit(X, y), X, y, engines=["chain", "mean_field"])["chain"].mpm_accuracy
    1.0
    >>> from crfield.core.graphs import Graphs
    >>> square = Graphs(np.array([0, 4]), np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0]))
    >>> scores = Potentials(np.eye(4, 2), 0.5 * np.eye(2)[None], square)
    >>> comparison = compare_inference(scores, engines=["brute", "chain"])
    >>> comparison["brute"].exact, comparison["chain"].reason[:29]
    (True, 'the chain engine reads chains')
    """
    potentials, truth = _asked(potentials, X, y, truth)
    codes = _codes(truth, potentials.topology.n_nodes)
    run = _Run(potentials, time_limit)
    for name, engine in _named(engines, n_jobs).items():
        run.ask(name, engine)
    if run.reference is None and engines is not None:
        choice = choose_engine(potentials, budget=_REFERENCE_BUDGET)
        if choice.exact:
            run.ask(choice.name, choice.engine)
    topology = potentials.topology
    return InferenceComparison(
        rows=run.rows(codes),
        reference=run.reference,
        n_graphs=topology.n_sequences,
        n_nodes=topology.n_nodes,
        n_edges=topology.n_edges,
        n_labels=potentials.n_labels,
        n_judged=0 if codes is None else int((codes >= 0).sum()),
        marginals={name: beliefs.node for name, (beliefs, _) in run.answers.items() if beliefs is not None},
    )


class _Run:
    """Answers gathered engine by engine, then turned into rows that look at one another."""

    def __init__(self, potentials: Potentials, time_limit: float) -> None:
        self.potentials, self.time_limit = potentials, time_limit
        self.answers: dict[str, tuple[Beliefs | None, Beliefs | None]] = {}
        self.seconds: dict[str, float] = {}
        self.reasons: dict[str, str] = {}
        self.order: list[str] = []
        self.reference: str | None = None
        self.spent = 0.0

    def ask(self, name: str, engine: Engine) -> None:
        """Both questions to one engine."""
        self.order.append(name)
        if self.spent > self.time_limit:
            self.reasons[name] = f"not started: the time limit of {self.time_limit:g} s was used up before it."
            return
        if isinstance(engine, BruteEngine) and (many := self._labellings()) > _MOST_ENUMERATED:
            self.reasons[name] = f"{many:.3g} labellings are too many to write out."
            return
        began = time.process_time()
        answers: list[Beliefs | None] = []
        refusals: list[str] = []
        for semiring in (Semiring.LOG, Semiring.MAX):
            try:
                with warnings.catch_warnings():
                    # The table says whether an engine converged.
                    warnings.simplefilter("ignore", CrfieldWarning)
                    answers.append(engine.infer(self.potentials, semiring))
            except (CrfieldError, MemoryError) as error:
                answers.append(None)
                refusals.append(str(error) or type(error).__name__)
        self.seconds[name] = time.process_time() - began
        self.spent += self.seconds[name]
        marginal, best = answers
        if marginal is None and best is None:
            self.reasons[name] = refusals[0]
            return
        self.answers[name] = (marginal, best)
        if self.reference is None and marginal is not None and marginal.exact and marginal.converged:
            self.reference = name

    def _labellings(self) -> float:
        return float((float(self.potentials.n_labels) ** self.potentials.topology.lengths).sum())

    def rows(self, codes: np.ndarray | None) -> tuple[InferenceRow, ...]:
        """A row for each engine in the order they were asked."""
        exact = self.answers[self.reference] if self.reference is not None else (None, None)
        scores = [best.total.sum() for _, best in self.answers.values() if best is not None]
        top = max(scores, default=None)
        return tuple(self._row(name, codes, exact, top) for name in self.order)

    def _row(
        self,
        name: str,
        codes: np.ndarray | None,
        exact: tuple[Beliefs | None, Beliefs | None],
        top: float | None,
    ) -> InferenceRow:
        if name in self.reasons:
            return InferenceRow(name, seconds=self.seconds.get(name), reason=self.reasons[name])
        marginal, best = self.answers[name]
        facts: dict[str, Any] = {"seconds": self.seconds[name]}
        if marginal is not None:
            facts |= {
                "exact": marginal.exact,
                "mpm_accuracy": _accuracy(marginal.node, codes),
                "total": float(marginal.total.sum()),
                "bound": marginal.bound,
            }
            if exact[0] is not None:
                facts["mean_error"], facts["max_error"] = self._errors(marginal.node, exact[0].node)
                facts["total_gap"] = _difference(facts["total"], float(exact[0].total.sum()))
        if best is not None and top is not None:
            facts |= {
                "map_accuracy": _accuracy(best.node, codes),
                "map_score": float(best.total.sum()),
                "map_exact": best.exact,
                "map_gap": _difference(float(top), float(best.total.sum())),
            }
        ours, theirs = (marginal, exact[0]) if marginal is not None else (best, exact[1])
        if ours is not None and theirs is not None and codes is not None:
            facts["loss"], facts["loss_error"] = _loss(ours.node, theirs.node, codes)
        given = [beliefs for beliefs in (marginal, best) if beliefs is not None]
        facts |= {"converged": all(beliefs.converged for beliefs in given), "sweeps": given[0].sweeps}
        return InferenceRow(name, **facts)

    def _errors(self, found: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
        wrong = np.abs(found - exact)[~np.isneginf(self.potentials.node)]
        return (float(wrong.mean()), float(wrong.max())) if wrong.size else (0.0, 0.0)


def _named(engines: Sequence[str | Engine] | Mapping[str, Engine] | None, n_jobs: int) -> dict[str, Engine]:
    """Engines under the names that the table shows."""
    if isinstance(engines, Mapping):
        return dict(engines)
    named: dict[str, Engine] = {}
    for engine in ENGINES if engines is None else [engines] if isinstance(engines, str) else engines:
        if isinstance(engine, str):
            options = {"n_jobs": n_jobs} if "n_jobs" in {f.name for f in fields(engine_class(engine))} else {}
            name, made = engine, engine_named(engine, **options)
        else:
            name, made = repr(engine), engine
        if not hasattr(made, "infer"):
            raise InputError(f"an engine has a method infer(potentials, semiring); {name:.60} has none.")
        named[name] = made
    if not named:
        raise InputError(f"there is no engine to compare. Name some of: {', '.join(ENGINES)}.")
    return named


def _asked(given: Any, X: Any, y: Any, truth: Any) -> tuple[Potentials, Any]:
    """Scores and codes of labels, of a model with data or of scores as they are."""
    if isinstance(given, Potentials):
        if X is not None or y is not None:
            raise InputError(
                "X and y go with a model: compare_inference(model, X, y). Of scores, the true labels are truth=codes."
            )
        return given, truth
    if not hasattr(given, "_judged"):
        raise InputError(
            "compare_inference(model, X, y) takes a fitted model of chains or graphs, such as ChainCRF or GraphCRF, "
            f"or Potentials, got {type(given).__name__}."
        )
    if X is None:
        raise InputError("a model needs data to score: compare_inference(model, X, y), with or without y.")
    if y is not None and truth is not None:
        raise InputError("y and truth both say what is true. Give labels as y, or their codes as truth.")
    potentials, codes = given._judged(X, y)
    return potentials, truth if y is None else codes


def _codes(truth: Any, n_nodes: int) -> np.ndarray | None:
    if truth is None:
        return None
    codes = np.asarray(truth)
    if codes.shape != (n_nodes,) or codes.dtype.kind not in "iu":
        raise ShapeError(
            f"truth must be one label code (an integer) for each of {n_nodes} nodes, got shape {codes.shape} of "
            f"{codes.dtype}. Encode the labels as the model does."
        )
    return codes


def _accuracy(node: np.ndarray, codes: np.ndarray | None) -> float | None:
    if codes is None or not (codes >= 0).any():
        return None
    return float((best_marginals(node) == codes)[codes >= 0].mean())


def _loss(node: np.ndarray, exact: np.ndarray, codes: np.ndarray) -> tuple[float | None, float | None]:
    """Accuracy lost and its standard error, from the nodes that only one of the two has right."""
    known = codes >= 0
    n = int(known.sum())
    if not n:
        return None, None
    ours, theirs = ((best_marginals(beliefs) == codes)[known] for beliefs in (node, exact))
    apart = theirs.astype(np.float64) - ours
    return float(apart.mean()), float(apart.std() / np.sqrt(n))


def _difference(a: float, b: float) -> float:
    return 0.0 if a == b else a - b  # two graphs without any possible labelling are equally far: -inf - -inf is NaN


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _share(value: float | None) -> str:
    return _NONE if value is None else f"{value:.4f}"


def _total(row: InferenceRow) -> str:
    return _NONE if row.total is None else f"{_MARKS.get(row.bound or '', '?')} {row.total:.4f}"


def _small(value: float | None) -> str:
    return _NONE if value is None else "0" if value < 1e-9 else f"{value:.1e}"


def _gap(value: float | None, *, sign: bool) -> str:
    if value is None:
        return _NONE
    return "0" if abs(value) < 5e-5 else f"{value:+.4f}" if sign else f"{value:.4f}"
