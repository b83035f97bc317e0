"""Verified boosting: virtual evidence proposes, pseudo-likelihood verifies, likelihood sets the weights.

Virtual evidence finds features and relations fast, and overdoes both: steps are never taken back, and a relation that
is not yet in the model hears its neighbours' full beliefs, which hold what the node itself told them through others,
so that on a chain of order k the distances 2k, 3k look useful too. Here each round only *proposes*:

    feature    joins with weight 0; likelihood then sets all weights again
    relation   joins if it raises the log pseudo-likelihood by more than ½ · dof · log N      (Schwarz 1978)

The test needs no inference, since it looks at the true labels of neighbours. A proposal opens the question for all
relations that are not in the model: the one that gains most is taken, for of two relations of which one follows from
the other it is the true one. What was accepted is asked again after each acceptance, and leaves if it no longer pays.
Where the accepted relations form a forest, or narrow loops, the likelihood is exact; elsewhere weights are refitted
by pseudo-likelihood (`crfield.training.graph.plan`).

Features need not be refitted one by one: while the model has M, M / 4 more may wait, with the values that boosting
would give them, for the next refit. Cost: about 4 log M refits in place of M.

With ``proposals="independent"`` features are picked by LogitBoost without neighbours, and relations asked afterwards:
better where data are few and long stretches of one label make every node's neighbours nearly as good as itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from crfield.boosting.round_table import Round
from crfield.boosting.virtual_evidence.additive import Additive, LocalStep
from crfield.boosting.virtual_evidence.couplings import Group, fit_couplings
from crfield.boosting.virtual_evidence.linear_form import LinearForm, Weights
from crfield.boosting.virtual_evidence.messages import VirtualEvidence, sums_of
from crfield.boosting.virtual_evidence.rounds import (
    WORTH,
    Boosted,
    FieldData,
    RoundOptions,
    best_local,
    boost,
    pairs_of_block,
)
from crfield.boosting.weak_learners.responses import centred
from crfield.boosting.weak_learners.stumps import stump_of
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.errors import LabelError
from crfield.kernels.boost import histograms
from crfield.kernels.virtual import Heard
from crfield.optimize.history import INTERRUPTED

PROPOSALS = ("virtual", "independent")
# Of the step of a feature that waits: a Newton step for nodes on their own is too long where neighbours repeat it.
SHARES = (1.0, 0.25, 0.0625)


@dataclass(frozen=True)
class Question:
    """What a relation gains in log pseudo-likelihood, and what it must."""

    relation: int
    gain: float
    least: float

    @property
    def worth(self) -> bool:
        """Whether it is accepted."""
        return self.gain > self.least


def verify(
    data: FieldData,
    target: Target,
    options: RoundOptions,
    *,
    l2: float = 1.0,
    proposals: str = "virtual",
    watch: Callable[[Round], bool | None] | None = None,
    rng: np.random.Generator,
) -> Boosted:
    """Propose for at most ``options.n_rounds`` rounds among columns and relations; verify; fit by likelihood."""
    growing = _Growing(data, target, options, l2, rng)
    reason = "all rounds done"
    try:
        if proposals == "independent":
            growing.pick_alone()
        while len(growing.rounds) < options.n_rounds or growing.open_relations:
            said = growing.propose(features=proposals == "virtual" and len(growing.rounds) < options.n_rounds)
            if said:
                reason = said
                break
            if (
                watch is not None
                and growing.rounds
                and watch(replace(growing.rounds[-1], number=len(growing.rounds)))
            ):
                reason = "callback"
                break
        growing.refit(tol=1e-5)
        if growing.rounds:
            growing.rounds[-1] = replace(growing.rounds[-1], nll=growing.nll())
    except KeyboardInterrupt:
        reason = INTERRUPTED
    rounds = [replace(one, number=number) for number, one in enumerate(growing.rounds, start=1)]
    return Boosted(growing.model(), rounds, reason, growing.form.reason)


class _Growing:
    """A model in the making: features, accepted relations, weights, and beliefs under them."""

    def __init__(
        self, data: FieldData, target: Target, options: RoundOptions, l2: float, rng: np.random.Generator
    ) -> None:
        self.data, self.options = data, options
        batch, schema, sizes = data.batch, data.schema, data.sizes
        self.batch, self.schema, self.sizes, self.labels = batch, schema, sizes, data.labels
        self.form = LinearForm(batch, schema, target, sizes, data.blocks, l2=l2, n_jobs=options.n_jobs, rng=rng)
        self.open_relations = [
            number
            for number in data.relations
            if (batch.relation == number).any()
            and min(sizes[schema.relations[number].tail], sizes[schema.relations[number].head]) > 1
        ]
        self.accepted: list[int] = []
        self.rounds: list[Round] = []
        self.waiting = 0  # features since the last refit
        self.known: set[str] = set()
        self.weights: Weights = self.form.fit((), Weights.zero(sizes, len(schema.relations)))
        self.extra = np.zeros((len(self.labels), max(sizes)))  # scores of the features that wait
        self.beliefs = self._beliefs()

    # ------------------------------------------------------------------- proposals

    def propose(self, *, features: bool) -> str:
        """One round; why there are no more, if so."""
        heard, groups = self._listen()
        local = best_local(self.data, heard.pairs, self.options) if features else None
        if local is not None and self.data.name(local) in self.known:
            if self.waiting:  # weights that are not the best yet ask for what is there already
                self.refit()
                return self.propose(features=features)
            local = self._fresh_stump(heard.pairs)
        if local is not None and local.learner.gain <= WORTH * len(self.labels):
            local = None
        relation, gain = self._best_relation(heard, groups)
        if local is None and relation is None:
            return "nothing more to gain"
        if local is not None and (relation is None or local.learner.gain >= gain):
            self._add(local)
            self.rounds.append(Round(0, "feature", self.data.name(local), float(local.learner.gain), self.nll()))
            return ""
        self._verify(gain)
        return ""

    def pick_alone(self) -> None:
        """Features by LogitBoost, as if there were no relations."""
        options = replace(self.options, exact=True, maximise=False, response_limit=4.0, patience=None)
        alone = boost(replace(self.data, relations=()), self.data.priors(), options)
        self.rounds += alone.rounds
        for step in alone.model.steps:
            if self.data.name(step) not in self.known:
                self.known.add(self.data.name(step))
                self.form.add(step)
        self.refit()

    def _listen(self) -> tuple[Heard, list[Group]]:
        """Responses of the beliefs, and their regression on neighbours by the relations that are open.

        There are no tables, so what is heard are the neighbours' beliefs themselves.
        """
        state = VirtualEvidence(
            self.batch,
            self.schema,
            self.beliefs,
            labels=self.labels,
            weight=self.data.weight,
            relations=tuple(self.open_relations),
            n_jobs=self.options.n_jobs,
        )
        return state.listen(limit=np.inf, exact=True), state.groups

    def _best_relation(self, heard: Heard, groups: list[Group]) -> tuple[int | None, float]:
        """The relation not yet decided on that virtual evidence prefers, and its gain."""
        if not groups:
            return None, 0.0
        found = fit_couplings(sums_of(heard), groups, self.sizes, ridge=self.options.ridge)
        best = max(found, key=lambda one: one.gain)
        return groups[best.group].relation, best.gain

    def _fresh_stump(self, pairs: np.ndarray) -> LocalStep | None:
        """The best stump on a column whose best cut is not in the model yet; a penalty leaves old ones some gain."""
        best: LocalStep | None = None
        for block in self.data.blocks:
            cut = block.candidates
            own, mirrored = pairs_of_block(block, pairs, self.sizes)
            sums = histograms(cut.packed, own, n_jobs=self.options.n_jobs)
            while (found := stump_of(cut, sums, ridge=self.options.ridge, mirrored=mirrored)) is not None:
                step = LocalStep(block.kind, block.part, found, centred(found.values))
                if self.data.name(step) not in self.known:
                    if best is None or found.gain > best.learner.gain:
                        best = step
                    break
                # Without weight a column cannot be cut.
                sums[:, cut.packed.offsets[found.column] : cut.packed.offsets[found.column + 1]] = 0.0
        return best

    def _add(self, step: LocalStep) -> None:
        self.known.add(self.data.name(step))
        self.form.add(step)
        self.waiting += 1
        if self.waiting > self.form.n_steps // 4:
            self.refit()
            return
        block = self.data.block_of(step)
        values = centred(step.learner.values)[step.learner.leaves(block.candidates)]
        before, loss = self.extra.copy(), self.nll()
        for share in SHARES:
            self.extra = before.copy()
            self.extra[block.rows, : values.shape[1]] += share * values
            self.beliefs = self._beliefs()
            if self.nll() < loss:
                return
        self.refit()

    # ---------------------------------------------------------------- verification

    def _verify(self, gain: float) -> None:
        """Ask all open relations; accept the best or, if it does not pay, close the question for all."""
        self.refit()
        questions = self._questions()
        best = max(questions, key=lambda one: one.gain)
        names = self.schema.relations
        if not best.worth:
            self.rounds += [
                Round(0, "relation", names[one.relation].name, one.gain, self.nll(), kept=False) for one in questions
            ]
            self.open_relations = []
            return
        self.open_relations.remove(best.relation)
        self.accepted.append(best.relation)
        self._ask_again()
        self.refit()
        self.rounds.append(Round(0, "relation", names[best.relation].name, best.gain, self.nll()))

    def _questions(self) -> list[Question]:
        """What each open relation would gain beside the accepted ones."""
        try:
            before = self.form.pseudo_likelihood(tuple(self.accepted), self.weights)
            return [
                Question(
                    relation,
                    before - self.form.pseudo_likelihood((*self.accepted, relation), self.weights),
                    self.form.least_gain(relation),
                )
                for relation in self.open_relations
            ]
        except LabelError as error:
            raise LabelError(f"relations cannot be verified: {error}") from None

    def _ask_again(self) -> None:
        """Accepted relations that no longer pay leave."""
        whole = self.form.pseudo_likelihood(tuple(self.accepted), self.weights)
        for relation in self.accepted[:-1]:
            rest = tuple(r for r in self.accepted if r != relation)
            value = self.form.pseudo_likelihood(rest, self.weights)
            if not value - whole > self.form.least_gain(relation):
                self.accepted, whole = list(rest), value

    # --------------------------------------------------------------------- weights

    def refit(self, *, tol: float = 1e-4) -> None:
        """All weights by likelihood, from those before; new ones start at 0."""
        self.weights = self.form.fit(tuple(self.accepted), self.weights, tol=tol)
        self.waiting = 0
        self.extra[:] = 0.0
        self.beliefs = self._beliefs()

    def _beliefs(self) -> np.ndarray:
        return self.form.infer(tuple(self.accepted), self.weights, self.extra, Semiring.LOG)

    def nll(self) -> float:
        """Mean −log p of the known labels."""
        rows = np.flatnonzero(self.labels >= 0)
        logs = np.log(np.maximum(self.beliefs[rows, self.labels[rows]], 1e-300))
        total = float(self.data.weight[rows].sum())
        return -float(self.data.weight[rows] @ logs) / total if total else float("nan")

    def model(self) -> Additive:
        """The model with the weights of the last refit."""
        return self.form.additive(tuple(self.accepted), self.weights)
