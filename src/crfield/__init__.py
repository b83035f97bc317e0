"""Conditional random fields and their family.

Names are loaded when first used, so ``import crfield`` itself costs next to nothing. Type checkers and editors cannot
follow that: they read the imports under ``TYPE_CHECKING``, which a test holds to the table of what is loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from crfield.compat.convert import convert_model as convert_model
    from crfield.compat.convert import write_crfsuite_model as write_crfsuite_model
    from crfield.compat.documents import marked as marked
    from crfield.compat.documents import tagged as tagged
    from crfield.compat.hub_columns import from_dataset as from_dataset
    from crfield.compat.hub_columns import to_columns as to_columns
    from crfield.core.constraints import Constraints as Constraints
    from crfield.data.clocks.align import align as align
    from crfield.data.clocks.readings import Readings as Readings
    from crfield.data.frames import from_frame as from_frame
    from crfield.data.frames import to_frame as to_frame
    from crfield.data.graphs.builders import chain as chain
    from crfield.data.graphs.builders import edge_list as edge_list
    from crfield.data.graphs.builders import from_networkx as from_networkx
    from crfield.data.graphs.builders import grid as grid
    from crfield.data.graphs.builders import layers as layers
    from crfield.data.graphs.graph import Edges as Edges
    from crfield.data.graphs.graph import Graph as Graph
    from crfield.data.lengths import from_lengths as from_lengths
    from crfield.data.lengths import to_lengths as to_lengths
    from crfield.data.texts.documents import Document as Document
    from crfield.data.texts.documents import TextSpan as TextSpan
    from crfield.data.tokens import TokenColumns as TokenColumns
    from crfield.estimators.active_learning import rank_for_labelling as rank_for_labelling
    from crfield.estimators.base.load import load as load
    from crfield.estimators.base.load import read_template as read_template
    from crfield.estimators.base.pipeline import Pipeline as Pipeline
    from crfield.estimators.base.pipeline import save as save
    from crfield.estimators.boosted.incomplete.boost import IncompleteBoost as IncompleteBoost
    from crfield.estimators.boosted.logit_boost import LogitBoost as LogitBoost
    from crfield.estimators.boosted.random_field import BoostedRandomField as BoostedRandomField
    from crfield.estimators.boosted.tree_crf import TreeCRF as TreeCRF
    from crfield.estimators.boosted.virtual_evidence import VirtualEvidenceBoosting as VirtualEvidenceBoosting
    from crfield.estimators.chain.crf import ChainCRF as ChainCRF
    from crfield.estimators.chain.m_estimated import MEstimatedCRF as MEstimatedCRF
    from crfield.estimators.chain.memm import MEMM as MEMM
    from crfield.estimators.chain.on_disk import encode_dataset as encode_dataset
    from crfield.estimators.choice.best_chain import BestChain as BestChain
    from crfield.estimators.choice.best_chain import choose as choose
    from crfield.estimators.continuous import ContinuousCRF as ContinuousCRF
    from crfield.estimators.dense.crf import DenseCRF as DenseCRF
    from crfield.estimators.explain.partial_dependence import partial_dependence as partial_dependence
    from crfield.estimators.graph.crf import GraphCRF as GraphCRF
    from crfield.estimators.graph.discriminative_field import DiscriminativeRandomField as DiscriminativeRandomField
    from crfield.estimators.graph.factorial import FactorialCRF as FactorialCRF
    from crfield.estimators.graph.grid import GridCRF as GridCRF
    from crfield.estimators.graph.markov_field import MarkovRandomField as MarkovRandomField
    from crfield.estimators.latent.hidden_crf import HiddenCRF as HiddenCRF
    from crfield.estimators.latent.latent_dynamic import LatentDynamicCRF as LatentDynamicCRF
    from crfield.estimators.markov.classifier_hmm import ClassifierHMM as ClassifierHMM
    from crfield.estimators.markov.hmm import HMM as HMM
    from crfield.estimators.maxent.classifier import MaxentClassifier as MaxentClassifier
    from crfield.estimators.segments.semi_markov import SemiMarkovCRF as SemiMarkovCRF
    from crfield.estimators.selected.crf import SelectedCRF as SelectedCRF
    from crfield.estimators.selected.stump_encoder import StumpEncoder as StumpEncoder
    from crfield.estimators.selected.stump_selector import StumpSelector as StumpSelector
    from crfield.estimators.similarity.crf import KernelCRF as KernelCRF
    from crfield.estimators.similarity.logistic import KernelLogistic as KernelLogistic
    from crfield.estimators.tuning.chain_cv import ChainCRFCV as ChainCRFCV
    from crfield.estimators.tuning.compare_trainers import compare_trainers as compare_trainers
    from crfield.estimators.tuning.group_folds import predict_by_group as predict_by_group
    from crfield.features.columns.trajectories import tag_columns as tag_columns
    from crfield.features.known import strict as strict
    from crfield.features.relational.catalogue import Specification as Specification
    from crfield.features.relational.recordings import Recordings as Recordings
    from crfield.features.sensors.places.shift import PlaceShift as PlaceShift
    from crfield.features.sensors.places.transformer import ReadingFeatures as ReadingFeatures
    from crfield.features.sensors.transformer import SensorFeatures as SensorFeatures
    from crfield.features.templates.template import Template as Template
    from crfield.features.text.transformer import TextFeatures as TextFeatures
    from crfield.report.comparisons.inference import compare_inference as compare_inference
    from crfield.report.displays.timeline import plot_timeline as plot_timeline
    from crfield.report.errors import error_groups as error_groups
    from crfield.report.replay import Replay as Replay
    from crfield.simulate.fields import make_noisy_images as make_noisy_images
    from crfield.simulate.fields import make_tags as make_tags
    from crfield.simulate.label_bias import make_rib_rob as make_rib_rob
    from crfield.simulate.order_chains import make_activity_days as make_activity_days
    from crfield.simulate.order_chains import make_order_chains as make_order_chains
    from crfield.simulate.phrases import make_phrases as make_phrases
    from crfield.simulate.phrases import phrase_features as phrase_features
    from crfield.simulate.scenes import make_scenes as make_scenes
    from crfield.simulate.smooth_series import make_smooth_series as make_smooth_series
    from crfield.simulate.soccer import make_soccer as make_soccer
    from crfield.simulate.sub_structure import make_sub_structure as make_sub_structure
    from crfield.simulate.tag import make_tag as make_tag
    from crfield.simulate.tag_vision import robot_vision as robot_vision
    from crfield.simulate.visual_words import make_visual_words as make_visual_words
    from crfield.simulate.weak_features import make_linked_features as make_linked_features
    from crfield.simulate.weak_features import make_sparse_columns as make_sparse_columns
    from crfield.simulate.weak_features import make_weak_features as make_weak_features
    from crfield.simulate.wearable import make_wearable_episodes as make_wearable_episodes
    from crfield.storage.datasets.recordings import read_recordings as read_recordings
    from crfield.storage.datasets.recordings import read_tracks as read_tracks
    from crfield.storage.datasets.word_lists import read_clusters as read_clusters
    from crfield.storage.datasets.word_lists import read_lexicon as read_lexicon
    from crfield.storage.encoded import EncodedDataset as EncodedDataset
    from crfield.storage.exchange import read_columns as read_columns
    from crfield.storage.exchange import read_conllu as read_conllu
    from crfield.storage.exchange import read_crfsuite as read_crfsuite
    from crfield.storage.exchange import read_documents as read_documents
    from crfield.storage.exchange import read_graphs as read_graphs
    from crfield.storage.exchange import write_columns as write_columns
    from crfield.storage.exchange import write_crfsuite as write_crfsuite
    from crfield.storage.exchange import write_documents as write_documents
    from crfield.storage.exchange import write_graphs as write_graphs
    from crfield.storage.limits import file_growth as file_growth
    from crfield.training.cluster.session import cluster as cluster
else:
    _HOME: dict[str, str] = {
        "align": "crfield.data.clocks.align",
        "BestChain": "crfield.estimators.choice.best_chain",
        "BoostedRandomField": "crfield.estimators.boosted.random_field",
        "chain": "crfield.data.graphs.builders",
        "ChainCRF": "crfield.estimators.chain.crf",
        "ChainCRFCV": "crfield.estimators.tuning.chain_cv",
        "choose": "crfield.estimators.choice.best_chain",
        "ClassifierHMM": "crfield.estimators.markov.classifier_hmm",
        "cluster": "crfield.training.cluster.session",
        "compare_inference": "crfield.report.comparisons.inference",
        "compare_trainers": "crfield.estimators.tuning.compare_trainers",
        "Constraints": "crfield.core.constraints",
        "convert_model": "crfield.compat.convert",
        "ContinuousCRF": "crfield.estimators.continuous",
        "DenseCRF": "crfield.estimators.dense.crf",
        "DiscriminativeRandomField": "crfield.estimators.graph.discriminative_field",
        "edge_list": "crfield.data.graphs.builders",
        "Edges": "crfield.data.graphs.graph",
        "encode_dataset": "crfield.estimators.chain.on_disk",
        "EncodedDataset": "crfield.storage.encoded",
        "error_groups": "crfield.report.errors",
        "FactorialCRF": "crfield.estimators.graph.factorial",
        "file_growth": "crfield.storage.limits",
        "from_frame": "crfield.data.frames",
        "from_lengths": "crfield.data.lengths",
        "from_networkx": "crfield.data.graphs.builders",
        "Graph": "crfield.data.graphs.graph",
        "GraphCRF": "crfield.estimators.graph.crf",
        "grid": "crfield.data.graphs.builders",
        "GridCRF": "crfield.estimators.graph.grid",
        "HiddenCRF": "crfield.estimators.latent.hidden_crf",
        "HMM": "crfield.estimators.markov.hmm",
        "IncompleteBoost": "crfield.estimators.boosted.incomplete.boost",
        "LatentDynamicCRF": "crfield.estimators.latent.latent_dynamic",
        "KernelCRF": "crfield.estimators.similarity.crf",
        "KernelLogistic": "crfield.estimators.similarity.logistic",
        "layers": "crfield.data.graphs.builders",
        "load": "crfield.estimators.base.load",
        "LogitBoost": "crfield.estimators.boosted.logit_boost",
        "make_activity_days": "crfield.simulate.order_chains",
        "make_linked_features": "crfield.simulate.weak_features",
        "make_noisy_images": "crfield.simulate.fields",
        "make_order_chains": "crfield.simulate.order_chains",
        "make_phrases": "crfield.simulate.phrases",
        "make_rib_rob": "crfield.simulate.label_bias",
        "make_scenes": "crfield.simulate.scenes",
        "make_smooth_series": "crfield.simulate.smooth_series",
        "make_soccer": "crfield.simulate.soccer",
        "make_sub_structure": "crfield.simulate.sub_structure",
        "make_tag": "crfield.simulate.tag",
        "make_tags": "crfield.simulate.fields",
        "make_visual_words": "crfield.simulate.visual_words",
        "make_sparse_columns": "crfield.simulate.weak_features",
        "make_weak_features": "crfield.simulate.weak_features",
        "make_wearable_episodes": "crfield.simulate.wearable",
        "MarkovRandomField": "crfield.estimators.graph.markov_field",
        "MaxentClassifier": "crfield.estimators.maxent.classifier",
        "MEMM": "crfield.estimators.chain.memm",
        "MEstimatedCRF": "crfield.estimators.chain.m_estimated",
        "Pipeline": "crfield.estimators.base.pipeline",
        "partial_dependence": "crfield.estimators.explain.partial_dependence",
        "phrase_features": "crfield.simulate.phrases",
        "PlaceShift": "crfield.features.sensors.places.shift",
        "plot_timeline": "crfield.report.displays.timeline",
        "predict_by_group": "crfield.estimators.tuning.group_folds",
        "rank_for_labelling": "crfield.estimators.active_learning",
        "ReadingFeatures": "crfield.features.sensors.places.transformer",
        "Readings": "crfield.data.clocks.readings",
        "Recordings": "crfield.features.relational.recordings",
        "read_clusters": "crfield.storage.datasets.word_lists",
        "read_columns": "crfield.storage.exchange",
        "read_conllu": "crfield.storage.exchange",
        "read_crfsuite": "crfield.storage.exchange",
        "read_graphs": "crfield.storage.exchange",
        "read_lexicon": "crfield.storage.datasets.word_lists",
        "read_recordings": "crfield.storage.datasets.recordings",
        "read_tracks": "crfield.storage.datasets.recordings",
        "read_template": "crfield.estimators.base.load",
        "Replay": "crfield.report.replay",
        "robot_vision": "crfield.simulate.tag_vision",
        "save": "crfield.estimators.base.pipeline",
        "SemiMarkovCRF": "crfield.estimators.segments.semi_markov",
        "SelectedCRF": "crfield.estimators.selected.crf",
        "SensorFeatures": "crfield.features.sensors.transformer",
        "Specification": "crfield.features.relational.catalogue",
        "strict": "crfield.features.known",
        "StumpEncoder": "crfield.estimators.selected.stump_encoder",
        "StumpSelector": "crfield.estimators.selected.stump_selector",
        "tag_columns": "crfield.features.columns.trajectories",
        "Template": "crfield.features.templates.template",
        "TextFeatures": "crfield.features.text.transformer",
        "to_frame": "crfield.data.frames",
        "to_lengths": "crfield.data.lengths",
        "TokenColumns": "crfield.data.tokens",
        "TreeCRF": "crfield.estimators.boosted.tree_crf",
        "VirtualEvidenceBoosting": "crfield.estimators.boosted.virtual_evidence",
        "write_columns": "crfield.storage.exchange",
        "write_crfsuite_model": "crfield.compat.convert",
        "write_crfsuite": "crfield.storage.exchange",
        "write_graphs": "crfield.storage.exchange",
        "to_columns": "crfield.compat.hub_columns",
        "from_dataset": "crfield.compat.hub_columns",
        "write_documents": "crfield.storage.exchange",
        "read_documents": "crfield.storage.exchange",
        "marked": "crfield.compat.documents",
        "tagged": "crfield.compat.documents",
        "TextSpan": "crfield.data.texts.documents",
        "Document": "crfield.data.texts.documents",
    }

    __all__ = ["__version__", *_HOME]  # noqa: PLE0604

    _RENAMED: dict[str, tuple[str, str]] = {}  # old name: the new one, and the version in which the old one ends

    def __getattr__(name: str) -> Any:
        if name in _HOME:
            value = getattr(import_module(_HOME[name]), name)
            globals()[name] = value
            return value
        if name in _RENAMED:
            new, gone = _RENAMED[name]
            import_module("crfield.errors").warn_renamed(f"crfield.{name}", f"crfield.{new}", gone=gone)
            return getattr(import_module("crfield"), new)
        raise AttributeError(f"module 'crfield' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted(set(globals()) | set(_HOME))
