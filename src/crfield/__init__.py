"""Conditional random fields and their family.

Names are loaded when first used, so ``import crfield`` itself costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME: dict[str, str] = {
    "BoostedRandomField": "crfield.estimators.boosted_field",
    "chain": "crfield.data.graph_builders",
    "ChainCRF": "crfield.estimators.chain",
    "ChainCRFCV": "crfield.estimators.chain_cv",
    "ClassifierHMM": "crfield.estimators.classifier_hmm",
    "compare_inference": "crfield.report.inference_comparison",
    "compare_trainers": "crfield.estimators.compare_trainers",
    "Constraints": "crfield.core.constraints",
    "convert_model": "crfield.compat.model_files",
    "ContinuousCRF": "crfield.estimators.continuous",
    "DiscriminativeRandomField": "crfield.estimators.discriminative_field",
    "edge_list": "crfield.data.graph_builders",
    "Edges": "crfield.data.graph",
    "encode_dataset": "crfield.estimators.encoding",
    "EncodedDataset": "crfield.storage.encoded",
    "error_groups": "crfield.report.errors",
    "FactorialCRF": "crfield.estimators.factorial",
    "from_frame": "crfield.data.frames",
    "from_lengths": "crfield.data.lengths",
    "from_networkx": "crfield.data.graph_builders",
    "Graph": "crfield.data.graph",
    "GraphCRF": "crfield.estimators.graph",
    "grid": "crfield.data.graph_builders",
    "GridCRF": "crfield.estimators.grid",
    "HiddenCRF": "crfield.estimators.hidden_crf",
    "HMM": "crfield.estimators.hmm",
    "IncompleteBoost": "crfield.estimators.incomplete_boost",
    "LatentDynamicCRF": "crfield.estimators.latent_dynamic",
    "KernelCRF": "crfield.estimators.kernel_crf",
    "KernelLogistic": "crfield.estimators.kernel_logistic",
    "layers": "crfield.data.graph_builders",
    "load": "crfield.estimators.load",
    "LogitBoost": "crfield.estimators.logit_boost",
    "make_activity_days": "crfield.simulate.order_chains",
    "make_linked_features": "crfield.simulate.weak_features",
    "make_noisy_images": "crfield.simulate.fields",
    "make_order_chains": "crfield.simulate.order_chains",
    "make_phrases": "crfield.simulate.phrases",
    "make_rib_rob": "crfield.simulate.label_bias",
    "make_smooth_series": "crfield.simulate.smooth_series",
    "make_soccer": "crfield.simulate.soccer",
    "make_sub_structure": "crfield.simulate.sub_structure",
    "make_tag": "crfield.simulate.tag",
    "make_tags": "crfield.simulate.fields",
    "make_visual_words": "crfield.simulate.visual_words",
    "make_weak_features": "crfield.simulate.weak_features",
    "make_wearable_episodes": "crfield.simulate.wearable",
    "MarkovRandomField": "crfield.estimators.markov_field",
    "MaxentClassifier": "crfield.estimators.logistic",
    "MEMM": "crfield.estimators.memm",
    "MEstimatedCRF": "crfield.estimators.m_estimated",
    "phrase_features": "crfield.simulate.phrases",
    "plot_timeline": "crfield.report.displays_timeline",
    "predict_by_group": "crfield.estimators.group_folds",
    "Recordings": "crfield.features.relational.recordings",
    "read_clusters": "crfield.storage.word_lists",
    "read_columns": "crfield.storage.exchange",
    "read_conllu": "crfield.storage.exchange",
    "read_crfsuite": "crfield.storage.exchange",
    "read_graphs": "crfield.storage.exchange",
    "read_lexicon": "crfield.storage.word_lists",
    "read_recordings": "crfield.storage.recordings",
    "read_template": "crfield.estimators.load",
    "Replay": "crfield.report.replay",
    "robot_vision": "crfield.simulate.tag_vision",
    "SemiMarkovCRF": "crfield.estimators.semi_markov",
    "SelectedCRF": "crfield.estimators.selected",
    "SensorFeatures": "crfield.features.sensors.transformer",
    "Specification": "crfield.features.relational.catalogue",
    "StumpEncoder": "crfield.estimators.stump_encoder",
    "StumpSelector": "crfield.estimators.stump_selector",
    "tag_columns": "crfield.features.trajectories",
    "Template": "crfield.features.template",
    "TextFeatures": "crfield.features.text",
    "to_frame": "crfield.data.frames",
    "to_lengths": "crfield.data.lengths",
    "TokenColumns": "crfield.data.tokens",
    "TreeCRF": "crfield.estimators.tree_crf",
    "VirtualEvidenceBoosting": "crfield.estimators.virtual_evidence",
    "write_columns": "crfield.storage.exchange",
    "write_crfsuite_model": "crfield.compat.model_files",
    "write_crfsuite": "crfield.storage.exchange",
    "write_graphs": "crfield.storage.exchange",
}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'crfield' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME))
