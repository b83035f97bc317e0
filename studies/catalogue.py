"""Every study by name: a sentence, what of which paper it covers, the data it reads, how long its quick form takes.

``crfield experiment NAME`` and ``crfield reproduce NAME`` run what stands here, whole or in a quick form. The whole
form is the one whose tables stand in the documentation. The quick form shows the same rows on less data, so that a
change of the code which breaks a study is noticed soon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    data: str = ""  # folder of the corpus below --data; generated where empty
    covers: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # text: what of it, as docs/papers.md names it

    @property
    def summary(self) -> str:
        """The sentence, what of which paper it covers, and whether it needs data.

        >>> Entry("coins", "throws of coins", "1 s", "coins", {"Bernoulli 1713": ("part 3", "part 4")}).summary
        'throws of coins (Bernoulli 1713: part 3, part 4; needs data)'
        """
        notes = [f"{paper}: {', '.join(items)}" for paper, items in self.covers.items()]
        notes += ["needs data"] * bool(self.data)
        return self.sentence + (f" ({'; '.join(notes)})" if notes else "")


CATALOGUE: Mapping[str, Entry] = MappingProxyType(
    {
        "snakes": Entry("graphs.snakes", "labels that follow from a chain of coloured cells", "39 s", data="snakes"),
        "letters": Entry(
            "handwriting.letters",
            "handwritten words: a linear chain, boosted trees alone, before a chain and in it",
            "20 s",
            data="letters",
            covers={"Liao et al. 2007": ("section 2, trees",)},
        ),
        "kernel-letters": Entry(
            "handwriting.kernel_letters",
            "handwritten words: kernels on pixels, landmarks, greedy cliques, waves",
            "19 s",
            data="letters",
            covers={"Essid's tutorial": ("kernel CRF",)},
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
            "graphs.noisy_images",
            "logistic regression, MRF, CRF and DRF under bimodal noise",
            "20 s",
            covers={"Xing's lecture notes": ("section 3.4.3, comparison",)},
        ),
        "dense-scenes": Entry(
            "graphs.dense_scenes",
            "dense fields on made scenes: weights set by hand, and compatibilities learnt",
            "20 s",
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
        "rfid-places": Entry(
            "activities.rfid.places",
            "activities in another room: columns that describe a place, columns that travel, and a clock",
            "16 s",
            data="har_rfid",
        ),
        "choose-activities": Entry(
            "activities.choosing",
            "activities of people: the model that inner folds choose against the best rows of both tables",
            "25 s",
            data="chest_acc",
        ),
        "smooth-series": Entry(
            "models.smooth_series",
            "real-valued labels: ridge and a continuous field, its numbers and its intervals",
            "6 s",
            covers={"Essid's tutorial": ("continuous CRF",)},
        ),
        "label-bias": Entry(
            "models.label_bias",
            "rib or rob: a maximum-entropy Markov model and a CRF with the same features",
            "5 s",
            covers={"Lafferty et al. 2001": ("section 5.1",), "Xing's lecture notes": ("figure 1",)},
        ),
        "motions": Entry(
            "models.motions",
            "one label for a sequence: hidden CRF, voting chain, linear SVM (needs the package aeon)",
            "a minute",
            covers={"Essid's tutorial": ("instruments",)},
        ),
        "sub-structure": Entry(
            "models.sub_structure",
            "labels that differ in the order of their phases: latent-dynamic CRF, plain chain, Bayes rule",
            "6 s",
            covers={"Essid's tutorial": ("LDCRF",)},
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
            covers={"Essid's tutorial": ("semi-Markov CRF",)},
        ),
        "spanish-entities": Entry(
            "text.spanish_entities",
            "Spanish names: features of text, rules of tags; each group of features left out",
            "14 s",
            data="conll2002",
        ),
        "active-entities": Entry(
            "text.active_entities",
            "Spanish names: which sentences to label next, by doubt or at random",
            "10 s",
            data="conll2002",
        ),
        "hidden-labels": Entry(
            "text.hidden_labels",
            "chunks with half of the labels hidden, against half of the sentences",
            "12 s",
            data="conll2000",
        ),
        "wearable-layers": Entry(
            "graphs.wearable_layers",
            "motion and context: two chains, coupled layers, one chain of pairs",
            "6 s",
            covers={"Liao et al. 2007": ("figure 2",)},
        ),
        "veb-fig1a": Entry(
            "virtual_evidence.chains",
            "accuracy against the strength of coupling on chains",
            "2 min",
            covers={"Liao et al. 2007": ("figure 1a",)},
        ),
        "veb-fig1b": Entry(
            "virtual_evidence.orders",
            "which of five relations is true: accuracy and picks on chains of order k",
            "3 min",
            covers={"Liao et al. 2007": ("figure 1b",)},
        ),
        "veb-evidence": Entry(
            "virtual_evidence.evidence_forms",
            "evidence of neighbours for LogitBoost: expected potentials or expected scores",
            "3 s",
            covers={
                "Liao et al. 2007": (
                    "equation 4",
                    "algorithm 1",
                )
            },
        ),
        "veb-combined": Entry(
            "virtual_evidence.combined",
            "virtual evidence boosting against its rivals, all experiments together",
            "1 min",
            covers={"Liao et al. 2007": ("section 5.2, combination",)},
        ),
        "veb-activities": Entry(
            "virtual_evidence.activities",
            "days of activities, many numeric features",
            "4 min",
            covers={"Liao et al. 2007": ("table 1",)},
        ),
        "veb-contexts": Entry(
            "virtual_evidence.contexts",
            "motions and places, two coupled layers",
            "76 s",
            covers={"Liao et al. 2007": ("table 2",)},
        ),
        "incomplete-visual": Entry(
            "incomplete.visual",
            "visual words with contours for some pictures",
            "67 s",
            covers={"Haffari et al. 2008": ("table 1",)},
        ),
        "incomplete-text": Entry(
            "incomplete.text",
            "words of phrases and names with tags for some sentences",
            "78 s",
            covers={
                "Haffari et al. 2008": (
                    "table 3",
                    "table 4",
                )
            },
            data="conll2000",
        ),
        "incomplete-text-large": Entry(
            "incomplete.text_large",
            "words of names at half the size of the paper: 2,500 and 3,000 sentences",
            "2 min",
            data="conll2000",
            covers={"Haffari et al. 2008": ("table 3", "table 4")},
        ),
        "incomplete-patches": Entry(
            "incomplete.patches",
            "do the words that say most about a picture lie on its object?",
            "30 s",
            covers={"Haffari et al. 2008": ("figure 1",)},
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
            covers={"Vail 2008": ("table 2.1", "section 2.7.2, windows")},
        ),
        "tag-table22": Entry(
            "vail.tag.smoothing",
            "an HMM counted, smoothed and trained for its labels, beside the CRF",
            "63 s",
            covers={
                "Vail 2008": (
                    "figure 2.5",
                    "table 2.2",
                    "figure 2.6",
                )
            },
        ),
        "hmm-coordinates": Entry(
            "vail.tag.coordinates",
            "an HMM trained for its labels one parameter at a time, beside counting and the gradient",
            "30 s",
            covers={"Vail 2008": ("section 2.7.4, steps",)},
        ),
        "m-estimator": Entry(
            "vail.m_estimator",
            "the M-estimator against maximum likelihood: a known chain, and tag with 93 weights",
            "3 min",
            covers={"Vail 2008": ("chapter 5",)},
        ),
        "weak-features": Entry(
            "vail.weak_features",
            "selection among fading copies: error and size of models",
            "3 min",
            covers={
                "Vail 2008": (
                    "figure 3.3",
                    "figure 3.4",
                    "figure 3.5",
                    "figure 3.6",
                    "figure 3.7",
                    "figure 3.8",
                    "figure 3.9",
                )
            },
        ),
        "weak-lengths": Entry(
            "vail.lengths",
            "selection among fading copies with ten lengths of training data",
            "1 min",
            covers={"Vail 2008": ("figure 3.7",)},
        ),
        "linked-features": Entry(
            "vail.linked_features",
            "features of labels or of changes: what selectors take",
            "4 min",
            covers={
                "Vail 2008": (
                    "figure 3.10",
                    "figure 3.11",
                )
            },
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
            covers={
                "Vail 2008": (
                    "figure 3.2",
                    "table 3.1",
                    "table 3.2",
                    "figure 3.12",
                    "section 3.4.2, 56.8 %",
                    "section 3.5, generalisation",
                )
            },
        ),
        "hmm-vs-crf": Entry(
            "vail.hmm_vs_crf",
            "an HMM and a CRF with few data, copied observations and switched transitions",
            "39 s",
            covers={
                "Vail 2008": (
                    "figure 2.2",
                    "figure 2.3",
                    "figure 2.4",
                )
            },
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
