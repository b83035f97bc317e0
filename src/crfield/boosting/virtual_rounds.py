"""Virtual evidence boosting: rounds in which features and relations compete.

    repeat   one sweep of messages                    beliefs p, virtual evidence λ
             working responses of p                   w, z
             best weak learner on columns             gain on one scale
             best coupling with virtual evidence
             the greater gain joins the model

(Liao, Choudhury, Fox & Kautz 2007, algorithm 2, for any number of labels, kinds and relations.) Without couplings it
is LogitBoost. Every node counts with its weight; nodes of unknown label pass messages on and teach nothing, which is
also how data are held out: their graphs take part in the sweeps, and their labels only judge.

The loss need not fall: messages lag behind the model by a sweep, and couplings feed on themselves. Training therefore
can stop when the mean −log p of the true labels has risen for some rounds, and goes back to its best round.

Cost of a round: one search of the columns, one sweep of the messages, one regression on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from crfield.boosting.additive import PARTS, Additive, LocalStep, columns_of, rows_of, start_scores
from crfield.boosting.candidates import Candidates
from crfield.boosting.couplings import Coupling, Group, fit_couplings, table_step
from crfield.boosting.messages import VirtualEvidence
from crfield.boosting.responses import centred, working_responses
from crfield.boosting.round_table import Round
from crfield.boosting.stumps import best_stump
from crfield.boosting.trees import fit_tree
from crfield.data.graph_batch import GraphBatch, GraphSchema
from crfield.errors import FeatureError
from crfield.kernels.virtual_numpy import softmax

LEARNERS = ("stump", "tree")
WORTH = 1e-9  # least gain for each node that a round is taken for


@dataclass(frozen=True)
class RoundOptions:
    """How rounds are run; `crfield.estimators.virtual_evidence` says what each means."""

    n_rounds: int = 100
    learner: str = "stump"
    max_depth: int = 2
    exact: bool = True
    response_limit: float = 4.0
    ridge: float = 0.0
    learning_rate: float = 1.0
    potential: str = "joint"
    maximise: bool = False
    patience: int | None = 5
    n_jobs: int = 1


@dataclass(frozen=True, eq=False)
class Block:
    """The columns of one kind and part, ready to be searched."""

    kind: int
    part: str
    rows: Any  # numbers of its nodes, or a slice
    columns: Any
    candidates: Candidates


@dataclass(frozen=True, eq=False)
class TableStep:
    """What a coupling added to the table of a relation, (L, L) with rows for the tail's label."""

    relation: int
    group: int
    step: np.ndarray


@dataclass(frozen=True, eq=False)
class Boosted:
    """A model, how it came about, and why it ended."""

    model: Additive
    rounds: list[Round]
    reason: str


def blocks_of(
    batch: GraphBatch, schema: GraphSchema, *, max_bins: int = 32, discrete: tuple[int, ...] = (), n_jobs: int = 1
) -> list[Block]:
    """All columns of a batch, cut into bins; ``discrete`` are numbers of dense columns that hold categories."""
    made = []
    for number, kind in enumerate(schema.kinds):
        for part in PARTS:
            start, stop = kind.dense if part == "dense" else kind.columns
            if start == stop:
                continue
            columns = columns_of(batch, schema, number, part)
            own = tuple(c - start for c in discrete if start <= c < stop) if part == "dense" else ()
            cut = Candidates.of(columns, max_bins=max_bins, discrete=own, n_jobs=n_jobs)
            made.append(Block(number, part, rows_of(batch, schema, number), columns, cut))
    width = max((kind.dense[1] for kind in schema.kinds), default=0)
    for column in discrete:
        if not 0 <= column < width:
            raise FeatureError(f"discrete names column {column}, but the dense columns are 0 … {width - 1}.")
    return made


def class_priors(
    labels: np.ndarray, weight: np.ndarray, batch: GraphBatch, sizes: tuple[int, ...]
) -> tuple[np.ndarray, ...]:
    """Log of the share of each label among the known ones of its kind, centred; F of the first round.

    >>> from crfield.data.graph import Graph
    >>> from crfield.features.graph_encoder import GraphEncoder
    >>> batch = GraphEncoder().fit([Graph(4)])
    >>> class_priors(np.array([0, 0, 0, 1]), np.ones(4), batch, (2,))[0].round(3).tolist()
    [0.549, -0.549]
    """
    found = []
    for number, size in enumerate(sizes):
        own = (batch.kind == number) & (labels >= 0)
        counts = np.bincount(labels[own], weight[own], minlength=size)
        # a label known from sets alone counts as half a node, so that its log exists
        logs = np.log(np.maximum(counts, min(0.5, counts.max(initial=0.5))))
        found.append(logs - logs.mean())
    return tuple(found)


def boost(
    batch: GraphBatch,
    schema: GraphSchema,
    labels: np.ndarray,
    weight: np.ndarray,
    sizes: tuple[int, ...],
    prior: tuple[np.ndarray, ...],
    blocks: list[Block],
    options: RoundOptions,
    *,
    held: np.ndarray | None = None,
    relations: tuple[int, ...] | None = None,
    name: Callable[[LocalStep], str] = str,
    watch: Callable[[Round], bool | None] | None = None,
) -> Boosted:
    """Run rounds on a batch with label codes (N,), −1 where unknown, and weights (N,) of the nodes.

    ``held`` (N,) marks nodes that do not teach and by whose −log p training stops. ``relations`` are the numbers of
    those that may be picked, all if None. ``watch`` is told of every round; True ends training.
    """
    taught = labels.copy()
    if held is not None:
        taught[held] = -1
    heard = VirtualEvidence(
        batch,
        schema,
        start_scores(batch, sizes, prior),
        relations=relations,
        maximise=options.maximise,
        n_jobs=options.n_jobs,
    )
    judge = _Judge(labels, weight, held)
    picks: list[LocalStep | TableStep] = []
    rounds: list[Round] = []
    reason = "all rounds done"
    for number in range(1, options.n_rounds + 1):
        beliefs = heard.advance()
        if rounds:
            rounds[-1] = judge.judged(rounds[-1], beliefs)
            if watch is not None and watch(rounds[-1]):
                reason = "callback"
                break
            said = judge.stop(options.patience)
            if said:
                reason = said
                break
        w, z = responses(beliefs, taught, weight, batch, sizes, options.response_limit)
        local = best_local(blocks, w, z, sizes, options)
        coupling = None
        if heard.groups:
            found = fit_couplings(heard.couple(w, z, exact=options.exact), heard.groups, sizes, ridge=options.ridge)
            coupling = max(found, key=lambda one: one.gain)
        gain = max(local.learner.gain if local else 0.0, coupling.gain if coupling else 0.0)
        if not gain > WORTH * len(labels):
            reason = "nothing more to gain"
            break
        if local is not None and (coupling is None or local.learner.gain >= coupling.gain):
            block = blocks[_place(blocks, local)]
            heard.add_local(block.rows, local.values[local.learner.leaves(block.candidates)])
            picks.append(local)
            rounds.append(Round(number, "feature", name(local), float(gain)))
        else:
            picks.append(_coupled(heard, coupling, sizes, options))  # type: ignore[arg-type]
            relation = heard.groups[coupling.group].relation  # type: ignore[union-attr]
            rounds.append(Round(number, "relation", schema.relations[relation].name, float(gain)))
    if rounds and np.isnan(rounds[-1].nll):
        rounds[-1] = judge.judged(rounds[-1], softmax(heard.total))
        if watch is not None:
            watch(rounds[-1])
    kept = judge.best if held is not None or reason.startswith("the loss") else len(picks)
    rounds = [replace(one, kept=one.number <= kept) for one in rounds]
    model = assembled(schema, sizes, prior, picks[:kept], heard.groups, options.potential)
    return Boosted(model, rounds, reason)


def best_local(
    blocks: list[Block], weight: np.ndarray, response: np.ndarray, sizes: tuple[int, ...], options: RoundOptions
) -> LocalStep | None:
    """The weak learner of largest gain on any columns, its leaf values centred and shortened by the learning rate."""
    best: LocalStep | None = None
    for block in blocks:
        size = sizes[block.kind]
        w, z = weight[block.rows, :size], response[block.rows, :size]
        if options.learner == "tree":
            found: Any = fit_tree(
                block.candidates, w, z, max_depth=options.max_depth, ridge=options.ridge, n_jobs=options.n_jobs
            )
        else:
            found = best_stump(block.candidates, w, z, ridge=options.ridge, n_jobs=options.n_jobs)
        if found is not None and (best is None or found.gain > best.learner.gain):
            best = LocalStep(block.kind, block.part, found, options.learning_rate * centred(found.values))
    return best


def responses(
    beliefs: np.ndarray,
    labels: np.ndarray,
    weight: np.ndarray,
    batch: GraphBatch,
    sizes: tuple[int, ...],
    limit: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Weights and responses (N, L), kind by kind; zero for labels that a kind does not have."""
    if len(sizes) == 1:
        w, z = working_responses(beliefs, labels, limit=limit)
    else:
        w, z = np.zeros_like(beliefs), np.zeros_like(beliefs)
        for number, size in enumerate(sizes):
            rows = batch.nodes_of(number)
            w[rows, :size], z[rows, :size] = working_responses(beliefs[rows, :size], labels[rows], limit=limit)
    if (weight != 1.0).any():
        w = w * weight[:, None]
    return w, z


def assembled(
    schema: GraphSchema,
    sizes: tuple[int, ...],
    prior: tuple[np.ndarray, ...],
    picks: list[LocalStep | TableStep],
    groups: list[Group],
    potential: str,
) -> Additive:
    """The model of some picks; one-sided tables ("patch") are made joint ones, without which there is no model."""
    tables = np.zeros((len(schema.relations), max(sizes), max(sizes)))
    for pick in picks:
        if isinstance(pick, TableStep):
            tables[pick.relation] += pick.step
    if potential == "patch":
        for group in groups:
            if group.symmetric:
                # The sum of the one-sided steps is itself one: its columns are centred already.
                size = sizes[group.own]
                own = tables[group.relation].T * size / max(size - 1, 1)
                tables[group.relation] = table_step(own, group, sizes, "joint")
    steps = tuple(pick for pick in picks if isinstance(pick, LocalStep))
    return Additive(schema, sizes, prior, steps, tables)


def _coupled(heard: VirtualEvidence, coupling: Coupling, sizes: tuple[int, ...], options: RoundOptions) -> TableStep:
    group = heard.groups[coupling.group]
    before = heard.tables[coupling.group].copy()
    step = options.learning_rate * table_step(coupling.values, group, sizes, options.potential)
    heard.add_table(coupling.group, step)
    taken = heard.tables[coupling.group] - before
    return TableStep(group.relation, coupling.group, taken if group.to_head else taken.T)


def _place(blocks: list[Block], step: LocalStep) -> int:
    return next(k for k, block in enumerate(blocks) if (block.kind, block.part) == (step.kind, step.part))


class _Judge:
    """Mean −log p of the true labels, of those that teach and of those held out, and whether it still falls."""

    def __init__(self, labels: np.ndarray, weight: np.ndarray, held: np.ndarray | None) -> None:
        out = np.zeros(len(labels), bool) if held is None else held
        self._sets = []
        for some in (~out, out):
            rows = np.flatnonzero(some & (labels >= 0))
            self._sets.append((rows, labels[rows], weight[rows]))
        self._values: list[float] = []
        self._held = held is not None

    def judged(self, one: Round, beliefs: np.ndarray) -> Round:
        """The round with what came of it."""
        found = []
        for rows, labels, weight in self._sets:
            logs = np.log(np.maximum(beliefs[rows, labels], 1e-300))
            total = weight.sum()
            found.append(-float(weight @ logs / total) if total > 0 else float("nan"))
        self._values.append(found[1] if self._held else found[0])
        return replace(one, nll=found[0], held_out=found[1] if self._held else None)

    @property
    def best(self) -> int:
        """The number of rounds after which the value was smallest."""
        return int(np.argmin(self._values)) + 1 if self._values else 0

    def stop(self, patience: int | None) -> str:
        """Why to stop now, or nothing."""
        if patience is None:
            return ""
        if self._held:
            return "the loss on held-out data no longer falls" if len(self._values) - self.best >= patience else ""
        last = self._values[-patience - 1 :]
        rising = len(last) > patience and all(later > before for before, later in pairwise(last))
        return f"the loss has risen for {patience} rounds" if rising else ""
