"""Every study by name: one sentence, the paper, the data it reads, and how long its quick form takes.

``crfield experiment NAME`` and ``crfield reproduce NAME`` run what stands here, whole or in a quick form. The whole
form is the one whose tables stand in the documentation. The quick form shows the same rows on less data, so that a
change of the code which breaks a study is noticed soon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType

from crfield.errors import InputError
from studies.framework import Study


@dataclass(frozen=True)
class Entry:
    """Where a study lives and what it shows; each module has a `Study` called ``STUDY``."""

    module: str  # below studies
    sentence: str
    cost: str  # of the quick form, on one processor
    paper: str = ""
    data: str = ""  # folder of the corpus below --data; generated where empty

    @property
    def summary(self) -> str:
        """The sentence, whose table it is, and whether it needs data.

        >>> Entry("coins", "throws of coins", "1 s", "Bernoulli 1713, part 4", "coins").summary
        'throws of coins (Bernoulli 1713, part 4; needs data)'
        """
        notes = [self.paper] * bool(self.paper) + ["needs data"] * bool(self.data)
        return self.sentence + (f" ({'; '.join(notes)})" if notes else "")


CATALOGUE: Mapping[str, Entry] = MappingProxyType(
    {
        "snakes": Entry("graphs.snakes", "labels that follow from a chain of coloured cells", "39 s", data="snakes"),
        "letters": Entry(
            "handwriting.letters",
            "handwritten words: a linear chain, boosted trees alone, before a chain and in it",
            "20 s",
            data="letters",
        ),
        "kernel-letters": Entry(
            "handwriting.kernel_letters",
            "handwritten words: kernels on pixels, landmarks, greedy cliques, waves",
            "19 s",
            data="letters",
        ),
        "order-chains": Entry(
            "graphs.order_chains", "which of five relations is true? exact, pseudo and Bethe likelihood", "21 s"
        ),
        "graph-defaults": Entry(
            "graphs.graph_defaults",
            "what graph models do by default where exact inference is too large, beside the model without edges",
            "49 s",
        ),
        "noisy-images": Entry(
            "graphs.noisy_images", "logistic regression, MRF, CRF and DRF under bimodal noise", "20 s"
        ),
        "rfid-trials": Entry(
            "activities.rfid.trials",
            "activities by a batteryless sensor: boosted fields, a linear chain, a Markov model",
            "25 s",
            data="har_rfid",
        ),
        "chest-persons": Entry(
            "activities.chest_persons",
            "activities by an accelerometer: a chain with selected columns against its rivals",
            "2 min",
            data="chest_acc",
        ),
        "rfid-activities": Entry(
            "activities.rfid.activities",
            "activities by a batteryless sensor: a chain with selected columns against its rivals",
            "4 min",
            data="har_rfid",
        ),
        "smooth-series": Entry(
            "models.smooth_series",
            "real-valued labels: ridge and a continuous field, its numbers and its intervals",
            "6 s",
        ),
        "label-bias": Entry(
            "models.label_bias",
            "rib or rob: a maximum-entropy Markov model and a CRF with the same features",
            "5 s",
            "Lafferty et al. 2001, section 5.1",
        ),
        "motions": Entry(
            "models.motions",
            "one label for a sequence: hidden CRF, voting chain, linear SVM (needs the package aeon)",
            "a minute",
        ),
        "sub-structure": Entry(
            "models.sub_structure",
            "labels that differ in the order of their phases: latent-dynamic CRF, plain chain, Bayes rule",
            "6 s",
        ),
        "higher-order": Entry(
            "text.higher_order",
            "chains of order one, two and three: worlds of known order, chunks of sentences",
            "16 s",
            data="conll2000",
        ),
        "one-data-set": Entry(
            "models.one_data_set",
            "which model when: HMM, MEMM, CRF and their relatives on one world with four switches",
            "32 s",
        ),
        "spanish-segments": Entry(
            "text.spanish_segments",
            "Spanish names: tags of tokens against labels of segments, with lengths and texts",
            "19 s",
            data="conll2002",
        ),
        "spanish-entities": Entry(
            "text.spanish_entities",
            "Spanish names: features of text, rules of tags; each group of features left out",
            "14 s",
            data="conll2002",
        ),
        "hidden-labels": Entry(
            "text.hidden_labels",
            "chunks with half of the labels hidden, against half of the sentences",
            "12 s",
            data="conll2000",
        ),
        "wearable-layers": Entry(
            "graphs.wearable_layers", "motion and context: two chains, coupled layers, one chain of pairs", "6 s"
        ),
        "veb-fig1a": Entry(
            "virtual_evidence.chains",
            "accuracy against the strength of coupling on chains",
            "2 min",
            "Liao et al. 2007, figure 1a",
        ),
        "veb-fig1b": Entry(
            "virtual_evidence.orders",
            "which of five relations is true: accuracy and picks on chains of order k",
            "3 min",
            "Liao et al. 2007, figure 1b",
        ),
        "veb-evidence": Entry(
            "virtual_evidence.evidence_forms",
            "evidence of neighbours for LogitBoost: expected potentials or expected scores",
            "3 s",
            "Liao et al. 2007, algorithm 1 and equation 4",
        ),
        "veb-activities": Entry(
            "virtual_evidence.activities",
            "days of activities, many numeric features",
            "4 min",
            "Liao et al. 2007, table 1, on simulated days",
        ),
        "veb-contexts": Entry(
            "virtual_evidence.contexts",
            "motions and places, two coupled layers",
            "76 s",
            "Liao et al. 2007, table 2, on simulated episodes",
        ),
        "incomplete-visual": Entry(
            "incomplete.visual",
            "visual words with contours for some pictures",
            "67 s",
            "Haffari et al. 2008, table 1",
        ),
        "incomplete-text": Entry(
            "incomplete.text",
            "words of phrases and names with tags for some sentences",
            "78 s",
            "Haffari et al. 2008, tables 3 and 4",
            data="conll2000",
        ),
        "incomplete-text-large": Entry(
            "incomplete.text_large",
            "words of names at half the size of the paper: 2,500 and 3,000 sentences",
            "2 min",
            "Haffari et al. 2008",
            data="conll2000",
        ),
        "incomplete-rivals": Entry(
            "incomplete.rivals",
            "hidden values: IncompleteBoost against logistic regression on imputed values and boosting with NaN",
            "24 s",
        ),
        "tag-table21": Entry(
            "vail.tag.observations",
            "who seeks: fifteen feature sets, a Gaussian HMM against a chain CRF",
            "6 min",
            "Vail 2008, table 2.1",
        ),
        "tag-table22": Entry(
            "vail.tag.smoothing",
            "an HMM counted, smoothed and trained for its labels, beside the CRF",
            "63 s",
            "Vail 2008, table 2.2, figures 2.5, 2.6",
        ),
        "m-estimator": Entry(
            "vail.m_estimator",
            "the M-estimator against maximum likelihood: a known chain, and tag with 93 weights",
            "3 min",
        ),
        "weak-features": Entry(
            "vail.weak_features",
            "selection among fading copies: error and size of models",
            "3 min",
            "Vail 2008, figures 3.4 to 3.9",
        ),
        "linked-features": Entry(
            "vail.linked_features",
            "features of labels or of changes: what selectors take",
            "4 min",
            "Vail 2008, figures 3.10 and 3.11",
        ),
        "sparse-columns": Entry(
            "vail.sparse_columns",
            "20 true columns of 2,000, and other worlds: recall, precision and accuracy of `SelectedCRF`",
            "2 min",
        ),
        "tag-selection": Entry(
            "vail.tag.selection",
            "selecting among 1,200 features of robot tag",
            "8 min",
            "Vail 2008, tables 3.1 and 3.2, figures 3.2 and 3.12",
        ),
        "hmm-vs-crf": Entry(
            "vail.hmm_vs_crf",
            "an HMM and a CRF with few data, copied observations and switched transitions",
            "39 s",
            "Vail 2008, figures 2.2 to 2.4",
            data="pima",
        ),
    }
)


def study_named(name: str) -> Study:
    """The study of that name.

    >>> study_named("veb-fig1a").full["seeds"]
    [1, 2, 3, 4, 5]
    """
    if name not in CATALOGUE:
        raise InputError(f"there is no study {name!r}; there are {', '.join(CATALOGUE)}.")
    study: Study = import_module(f"studies.{CATALOGUE[name].module}").STUDY
    return study
