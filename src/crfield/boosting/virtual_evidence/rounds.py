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

from crfield.boosting.round_table import Round
from crfield.boosting.virtual_evidence.additive import PARTS, Additive, LocalStep, columns_of, rows_of, start_scores
from crfield.boosting.virtual_evidence.couplings import Coupling, Group, fit_couplings, table_step
from crfield.boosting.virtual_evidence.messages import VirtualEvidence, sums_of
from crfield.boosting.weak_learners.candidates import Candidates
from crfield.boosting.weak_learners.responses import centred
from crfield.boosting.weak_learners.stumps import Categories, Stump, stump_of
from crfield.boosting.weak_learners.trees import tree_of
from crfield.data.graphs.batch import GraphBatch, GraphSchema
from crfield.errors import FeatureError
from crfield.kernels.boost import histograms
from crfield.kernels.probabilities import softmax
from crfield.optimize.history import INTERRUPTED

LEARNERS = ("stump", "tree")
WORTH = 1e-9  # least gain for each node that a round is taken for


@dataclass(frozen=True)
class RoundOptions:
    """How rounds are run; `crfield.estimators.boosted.virtual_evidence` says what each means."""

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
class FieldData:
    """What a boosted field learns from: graphs, labels, and the columns and relations that compete."""

    batch: GraphBatch
    schema: GraphSchema
    sizes: tuple[int, ...]  # L_k of each kind
    labels: np.ndarray  # (N,) codes, −1 where unknown
    weight: np.ndarray  # (N,)
    blocks: list[Block]
    relations: tuple[int, ...]  # those that may be picked
    name: Callable[[LocalStep], str] = str

    def block_of(self, step: LocalStep) -> Block:
        """The columns that a weak learner asks."""
        return next(block for block in self.blocks if (block.kind, block.part) == (step.kind, step.part))

    def priors(self, without: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        """`class_priors` of the labels, without those of some nodes (N,)."""
        labels = self.labels if without is None else np.where(without, -1, self.labels)
        return class_priors(labels, self.weight, self.batch, self.sizes)


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
    how: str = ""  # what was trained in the end


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

    >>> from crfield.data.graphs.graph import Graph
    >>> from crfield.features.graphs.encoder import GraphEncoder
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
    data: FieldData,
    prior: tuple[np.ndarray, ...],
    options: RoundOptions,
    *,
    held: np.ndarray | None = None,
    watch: Callable[[Round], bool | None] | None = None,
) -> Boosted:
    """Run rounds on data, from the prior (L_k,) of every kind.

    ``held`` (N,) marks nodes that do not teach and by whose −log p training stops. ``watch`` is told of every round;
    True ends training, and so does Ctrl-C.
    """
    schema, sizes, labels = data.schema, data.sizes, data.labels
    state = VirtualEvidence(
        data.batch,
        schema,
        softmax(start_scores(data.batch, sizes, prior)),
        labels=labels,
        weight=data.weight,
        held=held,
        relations=data.relations,
        maximise=options.maximise,
        n_jobs=options.n_jobs,
    )
    judge = _Judge(labels, data.weight, held)
    picks: list[LocalStep | TableStep] = []
    rounds: list[Round] = []
    reason = "all rounds done"
    try:
        for number in range(1, options.n_rounds + 1):
            heard = state.listen(limit=options.response_limit, exact=options.exact)
            if rounds:
                rounds[-1] = judge.judged(rounds[-1], heard.loss)
                if watch is not None and watch(rounds[-1]):
                    reason = "callback"
                    break
                said = judge.stop(options.patience)
                if said:
                    reason = said
                    break
            local = best_local(data, heard.pairs, options)
            coupling = None
            if state.groups:
                found = fit_couplings(sums_of(heard), state.groups, sizes, ridge=options.ridge)
                coupling = max(found, key=lambda one: one.gain)
            gain = max(local.learner.gain if local else 0.0, coupling.gain if coupling else 0.0)
            if not gain > WORTH * len(labels):
                reason = "nothing more to gain"
                break
            if local is not None and (coupling is None or local.learner.gain >= coupling.gain):
                block = data.block_of(local)
                state.add_local(block.rows, *leaves_of(local, block.candidates))
                picks.append(local)
                rounds.append(Round(number, "feature", data.name(local), float(gain)))
            else:
                picks.append(_coupled(state, coupling, sizes, options))  # type: ignore[arg-type]
                relation = state.groups[coupling.group].relation  # type: ignore[union-attr]
                rounds.append(Round(number, "relation", schema.relations[relation].name, float(gain)))
    except KeyboardInterrupt:
        reason = INTERRUPTED
    if rounds and np.isnan(rounds[-1].nll):
        after = state.listen(limit=options.response_limit, exact=options.exact)  # what the last round brought
        rounds[-1] = judge.judged(rounds[-1], after.loss)
        if watch is not None:
            watch(rounds[-1])
    kept = judge.best if held is not None or reason.startswith("the loss") else len(picks)
    rounds = [replace(one, kept=one.number <= kept) for one in rounds]
    model = assembled(schema, sizes, prior, picks[:kept], state.groups, options.potential)
    return Boosted(model, rounds, reason)


def best_local(data: FieldData, pairs: np.ndarray, options: RoundOptions) -> LocalStep | None:
    """The weak learner of largest gain on any columns for pairs (w, w z) of all nodes, as `listen` gives them.

    Its leaf values are centred and shortened by the learning rate.
    """
    best: LocalStep | None = None
    for block in data.blocks:
        own, mirrored = pairs_of_block(block, pairs, data.sizes)
        found: Any
        if options.learner == "tree":
            found = tree_of(
                block.candidates,
                own,
                mirrored=mirrored,
                max_depth=options.max_depth,
                ridge=options.ridge,
                n_jobs=options.n_jobs,
            )
        else:
            sums = histograms(block.candidates.packed, own, n_jobs=options.n_jobs)
            found = stump_of(block.candidates, sums, ridge=options.ridge, mirrored=mirrored)
        if found is not None and (best is None or found.gain > best.learner.gain):
            best = LocalStep(block.kind, block.part, found, options.learning_rate * centred(found.values))
    return best


def pairs_of_block(block: Block, pairs: np.ndarray, sizes: tuple[int, ...]) -> tuple[np.ndarray, bool]:
    """The pairs of a block's nodes and labels, and whether they are those of the second of two labels alone."""
    mirrored = sizes[block.kind] == 2
    labels = slice(0, 1) if len(pairs) == 1 else slice(1, 2) if mirrored else slice(0, sizes[block.kind])
    if isinstance(block.rows, slice) and len(pairs[labels]) == len(pairs):
        return pairs, mirrored
    return np.ascontiguousarray(pairs[labels][:, block.rows]), mirrored


def leaves_of(step: LocalStep, candidates: Candidates) -> tuple[np.ndarray, np.ndarray]:
    """Leaves (n,) of the rows, and their values; of stumps as codes of packed columns, which need no unpacking."""
    learner = step.learner
    if isinstance(learner, Stump | Categories) and candidates.packed.word[learner.column] >= 0:
        return replace(learner, values=step.values).by_word(candidates)
    return learner.leaves(candidates), step.values


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


def _coupled(state: VirtualEvidence, coupling: Coupling, sizes: tuple[int, ...], options: RoundOptions) -> TableStep:
    group = state.groups[coupling.group]
    before = state.tables[coupling.group].copy()
    step = options.learning_rate * table_step(coupling.values, group, sizes, options.potential)
    state.add_table(coupling.group, step)
    taken = state.tables[coupling.group] - before
    return TableStep(group.relation, coupling.group, taken if group.to_head else taken.T)


class _Judge:
    """Mean −log p of the true labels, of those that teach and of those held out, and whether it still falls."""

    def __init__(self, labels: np.ndarray, weight: np.ndarray, held: np.ndarray | None) -> None:
        known, out = labels >= 0, np.zeros(len(labels), bool) if held is None else held
        self._mass = [max(float(weight[known & some].sum()), 1e-300) for some in (~out, out)]
        self._values: list[float] = []
        self._held = held is not None

    def judged(self, one: Round, loss: np.ndarray) -> Round:
        """The round with what came of it."""
        taught, outside = (float(value) / mass for value, mass in zip(loss, self._mass))
        self._values.append(outside if self._held else taught)
        return replace(one, nll=taught, held_out=outside if self._held else None)

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
