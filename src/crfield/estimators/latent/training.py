"""How both latent models are trained: from several starts, of which the best is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crfield.core.checks import integer, number, one_of, random_generator, seed
from crfield.core.parameters import learnt, parameter
from crfield.core.typing import Seed
from crfield.errors import InputError
from crfield.estimators.base.groups import Optimised, Penalised, Threaded
from crfield.estimators.base.progress import Progress
from crfield.optimize.history import Result, Step
from crfield.optimize.penalty import Penalty
from crfield.training.latent.best import TRAININGS, fit_best
from crfield.training.latent.chain import LatentChain
from crfield.training.latent.em import Halves


class LatentTraining(Penalised, Optimised, Threaded):
    """Parameters of training with something hidden, and the training itself."""

    training: str = parameter(one_of(*TRAININGS), default="gradient")
    n_init: int = parameter(integer(1, meaning="the random starts"), default=3)
    start_scale: float = parameter(
        number(above=0, hint="From weights of zero all states would stay alike."), default=0.3
    )
    random_state: Seed = parameter(seed, default=0)

    start_objectives_: np.ndarray = learnt()

    def _train(self, problem: Halves, penalty: Penalty, *, hidden: bool) -> tuple[Result, np.ndarray]:
        """The best of the starts, one from the origin where nothing is hidden; and the objective of each."""
        rng, jobs = random_generator(self.random_state), self._jobs
        starts: list[np.ndarray | None] = [None]
        if hidden:
            starts = [rng.normal(scale=self.start_scale, size=problem.n_weights) for _ in range(self.n_init)]
        race, spent = False, 0
        if hidden and self.training == "gradient" and not penalty.l1 and isinstance(problem, LatentChain):
            race = problem.telling
            if race:
                starts[0], spent = problem.clustered_start(penalty, int(rng.integers(2**63)))
        alone = jobs == 1 or len(starts) == 1
        with Progress(self.verbose, total=self.max_iter, description=type(self).__name__) as progress:

            def watch(step: Step, weights: np.ndarray) -> bool | None:
                progress.update(step)
                return self.callback(step, weights) if self.callback is not None else None

            def after(number: int, result: Result) -> None:
                if result.history:
                    progress.update(result.history[-1])

            try:
                trained = fit_best(
                    problem,
                    penalty,
                    starts,
                    training=self.training,
                    tol=self.tol,
                    max_iter=int(self.max_iter),
                    n_jobs=jobs,
                    race=race,
                    callback=watch if self.callback is not None or (self.verbose and alone) else None,
                    after=after,
                )
            except RuntimeError as error:
                # A script that spawns processes is imported again by each of them, and must not train when it is.
                if alone or type(error).__name__ != "BrokenProcessPool":
                    raise
                raise InputError(
                    "the processes of n_jobs > 1 ended at once. In a script, put what it does under "
                    "`if __name__ == '__main__':`, or set n_jobs=1."
                ) from error
        return replace(trained.best, n_evaluations=trained.n_evaluations + spent), trained.values
