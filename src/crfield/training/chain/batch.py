"""Batch solvers of a chain: the functions behind rows of `training.chain.plan`.

Each sees the whole data in every step. What differs is what they make of a value and a gradient; truncated Newton
also asks for products with the second derivative (`objectives.curvature`), for which it looks at the scores again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.errors import InputError
from crfield.objectives.curvature import ContrastCurvature
from crfield.optimize.conjugate_gradient import minimize_cg
from crfield.optimize.history import Result
from crfield.optimize.newton_cg import Product, minimize_newton_cg
from crfield.optimize.penalty import Penalty
from crfield.optimize.projected_cg import minimize_projected_cg
from crfield.scoring.linear import LinearScorer
from crfield.training.chain.plan import ChainParts, Job
from crfield.training.full_batch import FullBatch
from crfield.training.likelihood import FusedChain, fit_likelihood

Problem = FusedChain | FullBatch


def fit_lbfgs(
    problem: Problem, penalty: Penalty, *, start: np.ndarray | None = None, options: Any = None, **common: Any
) -> Result:
    """L-BFGS, or OWL-QN with an l1 penalty, as `training.likelihood` runs it."""
    return fit_likelihood(problem, penalty, start=start, solver="lbfgs", **common)


def fit_warm(
    problem: Problem, penalty: Penalty, *, start: np.ndarray | None = None, options: Any = None, **common: Any
) -> Result:
    """Stochastic epochs, then L-BFGS or OWL-QN with a diagonal: `training.chain.warm_start`."""
    return fit_likelihood(problem, penalty, start=start, solver="warm", **common)


def fit_primal_dual(
    problem: Problem, penalty: Penalty, *, start: np.ndarray | None = None, options: Any = None, **common: Any
) -> Result:
    """Primal–dual epochs, then OWL-QN with an l1 penalty: `training.chain.primal_dual`."""
    return fit_likelihood(problem, penalty, start=start, solver="primal_dual", **common)


def fit_cg(
    problem: Problem,
    penalty: Penalty,
    *,
    start: np.ndarray | None = None,
    rng: Any = None,
    options: Any = None,
    **common: Any,
) -> Result:
    """Nonlinear conjugate gradients; ``options["update"]`` is "hager_zhang" or "polak_ribiere"."""
    return minimize_cg(problem, _from(problem, start), penalty, **(options or {}), **common)


def fit_projected_cg(
    problem: Problem,
    penalty: Penalty,
    *,
    start: np.ndarray | None = None,
    rng: Any = None,
    n_jobs: int = 1,
    options: Any = None,
    **common: Any,
) -> Result:
    """The l1 penalty by w⁺ − w⁻ and projected conjugate gradients."""
    return minimize_projected_cg(problem, _from(problem, start), penalty, **common)


def fit_newton_cg(parts: ChainParts, penalty: Penalty, job: Job) -> Result:
    """Truncated Newton with exact products."""
    problem = CurvedChain(parts, job.objective)
    begin = _from(problem, job.start)
    return minimize_newton_cg(
        problem, begin, penalty, tol=job.tol, max_iter=job.max_iter, n_jobs=job.n_jobs, callback=job.callback
    )


def _from(problem: Any, start: np.ndarray | None) -> np.ndarray:
    return np.zeros(problem.n_weights) if start is None else start


class CurvedChain:
    """The likelihood or softmax margin of a chain with its second derivative.

        ∇²f v = pull(H score(v))        H as in `objectives.curvature`

    >>> from crfield.core.target import Target
    >>> from crfield.core.topology import Chains
    >>> from crfield.data.batch import Batch, Columns
    >>> from crfield.scoring.layout import Layout
    >>> batch = Batch(Chains.from_lengths([2]), Columns.from_rows([[0], [0]], width=1))
    >>> target = Target(batch.topology, 2, np.array([0, 1]))
    >>> layout = Layout.observe(batch, target, transition_pairs="none", boundaries=False)
    >>> problem = CurvedChain(ChainParts.columns(layout, batch, target), "likelihood")
    >>> product, diagonal = problem.curvature_at(np.zeros(2))
    >>> product(np.array([1.0, 0.0])).tolist(), diagonal.round(6).tolist()
    ([0.5, -0.5], [0.5, 0.5])
    """

    def __init__(self, parts: ChainParts, objective: str) -> None:
        if objective not in ("likelihood", "softmax_margin"):
            raise InputError(
                f"second derivatives are known for the likelihood and the softmax margin, not {objective!r}."
            )
        self._parts, self._costs = parts, objective == "softmax_margin"
        self._plain = parts.problem(objective)
        # Directions are scored without constants, which do not move with the weights.
        self._directions: Any = parts.scorer
        if parts.layout is not None and getattr(parts.layout, "fixed", None) is not None:
            self._directions = LinearScorer(replace(parts.layout, fixed=None))

    @property
    def n_weights(self) -> int:
        """W."""
        return self._plain.n_weights

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value; the gradient is written to ``gradient``."""
        return self._plain.evaluate(weights, gradient)

    def curvature_at(self, weights: np.ndarray) -> tuple[Product, np.ndarray | None]:
        """v ↦ ∇²f(weights) v; and about the diagonal, where the packed problem knows it."""
        parts = self._parts
        here = parts.scorer.score(weights, parts.batch)
        curvature = ContrastCurvature(here, parts.target, costs=self._costs, n_jobs=parts.engine.n_jobs)

        def product(vector: np.ndarray) -> np.ndarray:
            direction: Potentials = self._directions.score(vector, parts.batch)
            return parts.scorer.pull(*curvature.times(direction), parts.batch)

        known = isinstance(self._plain, FusedChain) and not (
            self._plain.layout.n_edge_columns or self._plain.layout.n_edge_dense
        )
        return product, self._plain.curvature(weights) if known else None  # type: ignore[union-attr]
