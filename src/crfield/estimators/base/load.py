"""`crfield.load`: one door for all model files.

A class says the word that its files carry itself (``class HMM(…, kind="hmm")``); here is a table from these words to
where the classes live, so that reading one kind of file imports one estimator. A test holds the two together. The
archive itself knows no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from crfield.core.parameters import declared_parameters
from crfield.errors import ModelFileError
from crfield.features.templates.template import Template
from crfield.features.transformed import TRANSFORMERS, transformer_from_state
from crfield.storage import exchange
from crfield.storage.archive_reading import Archive, NotAnArchive, read_archive
from crfield.storage.state import State, check_numbers, reading

HOMES: dict[str, str] = {
    "best_chain": "crfield.estimators.choice.best_chain:BestChain",
    "continuous_crf": "crfield.estimators.continuous:ContinuousCRF",
    "chain_crf": "crfield.estimators.chain.crf:ChainCRF",
    "memm": "crfield.estimators.chain.memm:MEMM",
    "m_estimated_crf": "crfield.estimators.chain.m_estimated:MEstimatedCRF",
    "graph_crf": "crfield.estimators.graph.crf:GraphCRF",
    "grid_crf": "crfield.estimators.graph.grid:GridCRF",
    "factorial_crf": "crfield.estimators.graph.factorial:FactorialCRF",
    "dense_crf": "crfield.estimators.dense.crf:DenseCRF",
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
_PIPELINE = "pipeline"
KINDS = (*HOMES, *TRANSFORMERS, _PIPELINE)


def load(
    path: Any,
    *,
    mmap: bool = False,
    functions: Sequence[Any] | None = None,
    transition_functions: Sequence[Any] = (),
) -> Any:
    """Read a model that was written with ``save``, or a chain model of CRFsuite, CRF++ (text) or Wapiti.

    Damaged, cut, foreign or newer files raise `ModelFileError`; nothing in a file is executed. A small file that
    describes huge tables is refused too (`crfield.file_growth` lifts the limit). Feature functions are code and are
    given again.

    With ``mmap=True`` the arrays stay on disk, shared between processes, and each is checked when first used. Do not
    change such a file in place: replace it by another (``save`` does), for which those who have it mapped keep the
    old one. One that is cut while it is mapped (truncated, copied over) ends every process that then reads an array
    behind the cut with the signal SIGBUS, which no program can turn into an error.

    >>> import tempfile, os
    >>> from crfield import ChainCRF
    >>> model = ChainCRF().fit([[["sunny"], ["rainy"]]], [["walk", "read"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(os.path.join(folder, "weather.crfield"))
    ...     load(os.path.join(folder, "weather.crfield")).predict([[["rainy"]]])[0].tolist()
    ['read']
    """
    try:
        archive = read_archive(path, mmap=mmap)
    except NotAnArchive as error:
        if error.tool is None:
            raise
        with reading(error.file):
            return import_module("crfield.compat.models").load_foreign(path, error.tool)
    with reading(archive.name, given=functions is not None):
        given = {"functions": functions, "transition_functions": transition_functions}
        return _model(archive, archive.name, given, lazy=mmap)


def _model(archive: Archive, name: str, functions: dict[str, Any], *, lazy: bool) -> Any:
    """The model of an archive, built and checked; of a chain whose arrays are mapped, later."""
    kind = archive.header.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ModelFileError(
            f"{name} holds a model of kind {kind!r:.60}; this version knows {', '.join(sorted(KINDS))}. "
            "Was it written by a newer version of crfield?"
        )
    if kind == _PIPELINE:
        from crfield.estimators.base.pipeline import pipeline_of

        code: dict[str, Any] = {"functions": None, "transition_functions": ()}  # which the last step alone may have
        return pipeline_of(archive, lambda part, last: _model(part, name, functions if last else code, lazy=lazy))
    maker = class_of(kind) if kind in HOMES else None
    if maker is None or not (lazy and maker.lazy):
        check_numbers(archive.arrays)
    if maker is not None:
        known = () if functions["functions"] is None else declared_parameters(maker)
        given = {parameter: code for parameter, code in functions.items() if parameter in known}
        return maker._from_state(State(archive.header, archive.arrays), lazy=lazy, **given)
    return transformer_from_state(archive.header, archive.arrays)


def class_of(kind: str) -> Any:
    """The estimator whose files are of a kind."""
    module, _, name = HOMES[kind].partition(":")
    return getattr(import_module(module), name)


def read_template(source: Any) -> Template:
    r"""A CRF++ template from a file, a path or ``-`` for standard input.

    >>> import io
    >>> read_template(io.StringIO("U00:%x[0,0]\nB\n")).transitions
    True
    """
    return Template(exchange.read_template(source))
