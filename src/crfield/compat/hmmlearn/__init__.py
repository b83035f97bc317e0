"""hmmlearn's names and habits on crfield's kernels.

    from crfield.compat.hmmlearn import hmm        # in place of: from hmmlearn import hmm
    model = hmm.GaussianHMM(n_components=3).fit(X, lengths)

`GaussianHMM`, `GMMHMM`, `CategoricalHMM`, `MultinomialHMM` and `PoissonHMM` have its parameters, attributes
(``startprob_``, ``transmat_``, ``means_``, ``covars_`` …) and methods, and the same likelihoods step by step from
the same start. Three things are more: the beliefs of all sequences are computed in one compiled call, in
logarithms; cells that are NaN are integrated out (Gaussian and Poisson); and ``fit(X, lengths, labels=…)`` takes
the states that are known, −1 where they are not. For labels with names, durations, streaming and files see
`crfield.HMM`.
"""

from crfield.compat.hmmlearn.base import BaseHMM, ConvergenceMonitor
from crfield.compat.hmmlearn.counts import CategoricalHMM, MultinomialHMM, PoissonHMM
from crfield.compat.hmmlearn.gaussian import GaussianHMM
from crfield.compat.hmmlearn.mixtures import GMMHMM

__all__ = [
    "GMMHMM",
    "BaseHMM",
    "CategoricalHMM",
    "ConvergenceMonitor",
    "GaussianHMM",
    "MultinomialHMM",
    "PoissonHMM",
]
