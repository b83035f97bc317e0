"""Experiments by name: what ``crfield experiment NAME`` runs, whole or in a quick form.

The whole form is the one whose tables stand in the documentation. The quick form shows the same rows on less data,
so that a change of the code which breaks an experiment is noticed within seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from types import MappingProxyType
from typing import Any

from crfield.errors import InputError
from crfield.report.findings import Findings


@dataclass(frozen=True)
class Experiment:
    """Where an experiment lives, what it shows, and the options of its quick form."""

    module: str
    summary: str
    quick: Mapping[str, Any]
    needs_data: bool = False

    def run(
        self, *, quick: bool = False, data: str | None = None, n_jobs: int = 1, folds: tuple[int, ...] | None = None
    ) -> Findings:
        """Run it; ``data`` is the folder with the corpora for those that need one, ``folds`` those to test on."""
        name = self.module.rpartition(".")[2]
        function: Callable[..., Findings] = getattr(import_module(self.module), name)
        options: dict[str, Any] = dict(self.quick) if quick else {}
        if "n_jobs" in signature(function).parameters:
            options["n_jobs"] = n_jobs
        if folds is not None:
            known = signature(function).parameters.get("folds")
            if known is None or not isinstance(known.default, tuple):
                raise InputError(f"the experiment {name!r} has no folds to choose from. Leave out --folds.")
            options["folds"] = folds
        if not self.needs_data:
            return function(**options)
        if not data:
            raise InputError(
                f"the experiment {name!r} reads files: name the folder that holds them with --data FOLDER, or in the "
                "environment as CRFIELD_DATA."
            )
        return function(data, **options)


EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {
        "snakes": Experiment(
            "studies.graphs.snakes",
            "labels that follow from a chain of coloured cells (needs data)",
            {"quick": True},
            needs_data=True,
        ),
        "letters": Experiment(
            "studies.handwriting.letters",
            "handwritten words: a linear chain, boosted trees alone, before a chain and in it (needs data)",
            {"folds": (0,), "n_rounds": 25, "max_depth": 6, "learning_rate": 0.3, "most_words": 1_500},
            needs_data=True,
        ),
        "kernel-letters": Experiment(
            "studies.handwriting.kernel_letters",
            "handwritten words: kernels on pixels, landmarks, greedy cliques, waves (needs data)",
            {"folds": (0,), "n_components": 200, "most_words": 600},
            needs_data=True,
        ),
        "order-chains": Experiment(
            "studies.graphs.order_chains",
            "which of five relations is true? exact, pseudo and Bethe likelihood",
            {"orders": (1, 3), "seeds": (1, 2), "n_chains": 4, "length": 300},
        ),
        "graph-defaults": Experiment(
            "studies.graphs.graph_defaults",
            "what graph models do by default where exact inference is too large, beside the model without edges",
            {"seeds": (0,), "image_seeds": (0,), "compare": False},
        ),
        "noisy-images": Experiment(
            "studies.graphs.noisy_images",
            "logistic regression, MRF, CRF and DRF under bimodal noise",
            {"seeds": (0, 1, 2), "n_train": 4, "n_test": 2, "size": 32},
        ),
        "rfid-trials": Experiment(
            "studies.activities.rfid_trials",
            "activities by a batteryless sensor: boosted fields, a linear chain, a Markov model (needs data)",
            {"repetitions": 2, "folds": 2, "inner_folds": 0, "most_trials": 16},
            needs_data=True,
        ),
        "chest-persons": Experiment(
            "studies.activities.chest_persons",
            "activities by an accelerometer: a chain with selected columns against its rivals (needs data)",
            {"people": (2, 3, 6), "inner_folds": 2, "n_selected": 40},
            needs_data=True,
        ),
        "rfid-activities": Experiment(
            "studies.activities.rfid_activities",
            "activities by a batteryless sensor: a chain with selected columns against its rivals (needs data)",
            {"folds": 2, "most_trials": 10, "n_selected": 60},
            needs_data=True,
        ),
        "smooth-series": Experiment(
            "studies.models.smooth_series",
            "real-valued labels: ridge and a continuous field, its numbers and its intervals",
            {"seeds": (0, 1, 2), "n_series": 20},
        ),
        "label-bias": Experiment(
            "studies.models.label_bias",
            "rib or rob: a maximum-entropy Markov model and a CRF with the same features",
            {"seeds": (0, 1), "n_words": 1000},
        ),
        "motions": Experiment(
            "studies.models.motions",
            "one label for a sequence: hidden CRF, voting chain, linear SVM (needs the package aeon)",
            {"sets": ("BasicMotions",), "seeds": (0,), "states": (4,), "penalties": (1.0,), "folds": 2, "n_init": 1},
        ),
        "sub-structure": Experiment(
            "studies.models.sub_structure",
            "labels that differ in the order of their phases: latent-dynamic CRF, plain chain, Bayes rule",
            {"seeds": (0, 1), "n_sequences": 40, "n_test": 40},
        ),
        "higher-order": Experiment(
            "studies.text.higher_order",
            "chains of order one, two and three: worlds of known order, chunks of sentences (needs data)",
            {"worlds": (2,), "orders": (1, 2), "seeds": (1, 2), "length": 200, "most_sentences": 60, "tol": 1e-2},
            needs_data=True,
        ),
        "one-data-set": Experiment(
            "studies.models.one_data_set",
            "which model when: HMM, MEMM, CRF and their relatives on one world with four switches",
            {"seeds": (0, 1), "n_sequences": 12, "n_test": 10},
        ),
        "spanish-segments": Experiment(
            "studies.text.spanish_segments",
            "Spanish names: tags of tokens against labels of segments, with lengths and texts (needs data)",
            {"penalties": (1.0,), "most_sentences": 300, "tol": 1e-2},
            needs_data=True,
        ),
        "spanish-entities": Experiment(
            "studies.text.spanish_entities",
            "Spanish names: features of text, rules of tags; each group of features left out (needs data)",
            {
                "sets": ("shapes together",),
                "penalties": (1.0,),
                "groups": ("affixes",),
                "most_sentences": 300,
                "tol": 1e-2,
            },
            needs_data=True,
        ),
        "hidden-labels": Experiment(
            "studies.text.hidden_labels",
            "chunks with half of the labels hidden, against half of the sentences (needs data)",
            {"seeds": (0, 1), "most_sentences": 400, "tol": 1e-2},
            needs_data=True,
        ),
        "wearable-layers": Experiment(
            "studies.graphs.wearable_layers",
            "motion and context: two chains, coupled layers, one chain of pairs",
            {"n_episodes": 6, "length": 120, "folds": 3},
        ),
    }
)


def experiment_named(name: str) -> Experiment:
    """The experiment of that name.

    >>> experiment_named("snakes").needs_data
    True
    """
    if name not in EXPERIMENTS:
        raise InputError(f"there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]
