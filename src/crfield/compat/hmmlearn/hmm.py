"""The module ``hmmlearn.hmm``: the models by the place they are imported from there."""

from crfield.compat.hmmlearn.counts import CategoricalHMM, MultinomialHMM, PoissonHMM
from crfield.compat.hmmlearn.gaussian import GaussianHMM
from crfield.compat.hmmlearn.mixtures import GMMHMM

__all__ = ["GMMHMM", "CategoricalHMM", "GaussianHMM", "MultinomialHMM", "PoissonHMM"]
