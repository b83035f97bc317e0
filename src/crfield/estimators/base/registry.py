"""Which class reads a model file: the word that a file of each estimator carries, and where its class lives.

A table of names, so that reading one kind of file imports one estimator. A class says its word itself
(``class HMM(…, kind="hmm")``); a test holds the two together.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

HOMES: dict[str, str] = {
    "best_chain": "crfield.estimators.choice.best_chain:BestChain",
    "continuous_crf": "crfield.estimators.continuous:ContinuousCRF",
    "chain_crf": "crfield.estimators.chain.crf:ChainCRF",
    "memm": "crfield.estimators.chain.memm:MEMM",
    "m_estimated_crf": "crfield.estimators.chain.m_estimated:MEstimatedCRF",
    "graph_crf": "crfield.estimators.graph.crf:GraphCRF",
    "grid_crf": "crfield.estimators.graph.grid:GridCRF",
    "factorial_crf": "crfield.estimators.graph.factorial:FactorialCRF",
    "discriminative_field": "crfield.estimators.graph.discriminative_field:DiscriminativeRandomField",
    "markov_field": "crfield.estimators.graph.markov_field:MarkovRandomField",
    "hidden_crf": "crfield.estimators.latent.hidden_crf:HiddenCRF",
    "kernel_crf": "crfield.estimators.similarity.crf:KernelCRF",
    "kernel_logistic": "crfield.estimators.similarity.logistic:KernelLogistic",
    "classifier_hmm": "crfield.estimators.markov.classifier_hmm:ClassifierHMM",
    "hmm": "crfield.estimators.markov.hmm:HMM",
    "latent_dynamic_crf": "crfield.estimators.latent.latent_dynamic:LatentDynamicCRF",
    "selected_crf": "crfield.estimators.selected.crf:SelectedCRF",
    "semi_markov": "crfield.estimators.segments.semi_markov:SemiMarkovCRF",
    "logit_boost": "crfield.estimators.boosted.logit_boost:LogitBoost",
    "virtual_evidence": "crfield.estimators.boosted.virtual_evidence:VirtualEvidenceBoosting",
    "boosted_field": "crfield.estimators.boosted.random_field:BoostedRandomField",
    "incomplete_boost": "crfield.estimators.boosted.incomplete.boost:IncompleteBoost",
    "maxent_classifier": "crfield.estimators.maxent.classifier:MaxentClassifier",
    "stump_encoder": "crfield.estimators.selected.stump_encoder:StumpEncoder",
    "stump_selector": "crfield.estimators.selected.stump_selector:StumpSelector",
    "tree_crf": "crfield.estimators.boosted.tree_crf:TreeCRF",
}


def class_of(kind: str) -> Any:
    """The estimator whose files are of a kind."""
    module, _, name = HOMES[kind].partition(":")
    return getattr(import_module(module), name)
