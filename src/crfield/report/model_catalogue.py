"""Every model there is, on one page: what it labels, what it assumes, and when to use it.

The family is large, and its members differ in little: a mask, a table, another score. So the table is ordered by what
gets a label, which one knows before anything else, and says for each model what must be so for it to be right.
The example of a model is the one in the docstring of its estimator, which the tests run; here it is only found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from inspect import cleandoc
from textwrap import wrap
from typing import Any

from crfield.errors import InputError

STEP = "every step of a sequence"
SEGMENT = "segments of a sequence"
SEQUENCE = "a sequence as a whole"
NODE = "every node of a graph"
LAYERS = "several layers of labels over time"
PIXEL = "every pixel of an image"
NUMBER = "every step or node, a number"
ROW = "single rows"


@dataclass(frozen=True)
class Model:
    """One line of the table; ``name`` is the estimator's, ``page`` a path below docs/.

    >>> model_named("chaincrf").labels
    'every step of a sequence'
    """

    name: str
    labels: str
    assumes: str
    take: str
    page: str

    def to_dict(self) -> dict[str, str]:
        """All of it, for JSON."""
        return asdict(self)


MODELS: tuple[Model, ...] = (
    Model(
        "ChainCRF",
        STEP,
        "neighbouring labels depend on each other; scores are linear in the columns",
        "the first model to try, and the baseline for the others",
        "methods/chain-crf.md",
    ),
    Model(
        "HMM",
        STEP,
        "given its label a step is independent of all others and has the density of the chosen family",
        "few labelled steps or none, generating data, densities that are known to fit; not for redundant columns",
        "methods/hmm.md",
    ),
    Model(
        "ClassifierHMM",
        STEP,
        "single steps are classified well; transitions between labels can be counted",
        "you already have a good classifier of single steps",
        "methods/hmm-on-scores.md",
    ),
    Model(
        "BestChain",
        STEP,
        "the model that does best on held-out groups of the training data does best on new ones",
        "numeric columns recorded in groups (people, trials, places), and no wish to choose a model by hand",
        "guides/choosing.md",
    ),
    Model(
        "MEMM",
        STEP,
        "a label depends on the previous label and on the current step, never on later steps",
        "labelling strictly from left to right, or showing what label bias costs; otherwise ChainCRF",
        "methods/memm.md",
    ),
    Model(
        "LatentDynamicCRF",
        STEP,
        "each label passes through hidden phases of its own",
        "labels differ in the order of what happens within them",
        "methods/latent-models.md",
    ),
    Model(
        "KernelCRF",
        STEP,
        "similar steps have similar scores; labels form a chain as in ChainCRF (or a graph)",
        "a few columns that matter jointly, in a way you cannot write down as products",
        "methods/kernel-crf.md",
    ),
    Model(
        "TreeCRF",
        STEP,
        "scores of labels, and of pairs of labels, are sums of regression trees",
        "sensor data: many columns of different kinds, thresholds, interactions, missing values",
        "methods/gradient-tree-boosting.md",
    ),
    Model(
        "SelectedCRF",
        STEP,
        "few of very many candidate columns matter",
        "thousands to millions of candidate columns, or a model that must be small, fast or readable",
        "methods/feature-selection.md",
    ),
    Model(
        "MEstimatedCRF",
        STEP,
        "as ChainCRF, with weights from a criterion that needs no partition function",
        "training must be cheap and an approximate optimum is enough, as within a feature selection",
        "methods/m-estimator.md",
    ),
    Model(
        "SemiMarkovCRF",
        SEGMENT,
        "a label belongs to a segment, which is scored as a whole by its length and contents",
        "segments have typical lengths, or a text of their own, as names do",
        "methods/semi-markov.md",
    ),
    Model(
        "HiddenCRF",
        SEQUENCE,
        "each class runs through hidden states in its own order",
        "gestures, utterances, motions: one label for each recording",
        "methods/latent-models.md",
    ),
    Model(
        "FactorialCRF",
        LAYERS,
        "each layer is a chain, and layers at one time depend on each other",
        "motion and place, words and phrases: several labels at each step",
        "guides/graphs.md",
    ),
    Model(
        "GraphCRF",
        NODE,
        "labels that an edge joins depend on each other; scores are linear in the columns",
        "the structure is known and is not a chain: linked pages, skip-chains, pixels with your own edges",
        "methods/graph-crf.md",
    ),
    Model(
        "DiscriminativeRandomField",
        NODE,
        "two labels; a classifier scores single nodes, the columns at both ends of an edge say how much they agree",
        "images with two kinds of regions, and a classifier for single nodes",
        "guides/graphs.md",
    ),
    Model(
        "MarkovRandomField",
        NODE,
        "given its label, a node is independent of all others and follows that label's density",
        "the generative baseline for images and graphs, or densities that are known to fit",
        "guides/graphs.md",
    ),
    Model(
        "VirtualEvidenceBoosting",
        NODE,
        "scores are sums of stumps on columns and on neighbours' labels (sequences too)",
        "it is not known which columns matter and which labels depend on which",
        "methods/virtual-evidence-boosting.md",
    ),
    Model(
        "BoostedRandomField",
        NODE,
        "neighbours act through their current marginals, which weak learners weigh (sequences too)",
        "dense graphs with many edges, each of which says little",
        "methods/boosted-random-fields.md",
    ),
    Model(
        "GridCRF",
        PIXEL,
        "as GraphCRF; neighbouring pixels are joined",
        "images in, images of labels out",
        "guides/graphs.md",
    ),
    Model(
        "DenseCRF",
        PIXEL,
        "any two pixels tend to share a label, more so the closer they are in place and in colour",
        "sharpening a network's probabilities or scribbles at the edges of objects; volumes and point sets too",
        "methods/dense-crf.md",
    ),
    Model(
        "ContinuousCRF",
        NUMBER,
        "labels are jointly normal given the columns; neighbours are close (sequences and graphs)",
        "regression where neighbours agree, with a variance for every answer",
        "methods/continuous.md",
    ),
    Model(
        "MaxentClassifier",
        ROW,
        "log-odds are linear in named features f(x, y)",
        "rows do not depend on each other; the first classifier to try",
        "methods/logistic.md",
    ),
    Model(
        "KernelLogistic",
        ROW,
        "similar rows have similar scores",
        "as KernelCRF, for rows that do not depend on each other; with the hinge loss it is a support vector machine",
        "methods/logistic.md",
    ),
    Model(
        "LogitBoost",
        ROW,
        "log-odds are sums of stumps, trees or any regressors",
        "many columns, few of which matter, at thresholds to be found",
        "methods/logit-boost.md",
    ),
    Model(
        "IncompleteBoost",
        ROW,
        "a part of each row's description is hidden in some rows",
        "something helpful is known for only part of the training data, or will be missing at prediction",
        "methods/boosting-incomplete-information.md",
    ),
)


def model_named(name: str) -> Model:
    """The model of that estimator's name, in whatever case.

    >>> model_named("hmm").name
    'HMM'
    """
    for model in MODELS:
        if model.name.lower() == name.lower():
            return model
    from difflib import get_close_matches

    known = {model.name.lower(): model.name for model in MODELS}
    near = [known[found] for found in get_close_matches(name.lower(), known, n=1)]
    meant = f" Is {near[0]} meant?" if near else ""
    raise InputError(f"there is no model {name!r}.{meant} There are {', '.join(known.values())}.")


def as_text(models: Sequence[Model] = MODELS, *, columns: int = 100) -> str:
    """The table for a terminal: below what is labelled each model with what it assumes, and when to take it.

    >>> print(as_text([model_named("GridCRF")], columns=60))
    every pixel of an image
      GridCRF  as GraphCRF; neighbouring pixels are joined
               → images in, images of labels out
    """
    wide = max(len(model.name) for model in models)
    lines: list[str] = []
    labelled = ""
    for model in models:
        if model.labels != labelled:
            lines += ["", labelled := model.labels]
        room = max(columns - wide - 6, 20)
        told = [
            *wrap(model.assumes, room),
            *("→ " * (k == 0) + part for k, part in enumerate(wrap(model.take, room))),
        ]
        lines += [f"  {model.name if k == 0 else '':<{wide}}  {part}" for k, part in enumerate(told)]
    return "\n".join(lines[1:])


def as_markdown(models: Sequence[Model] = MODELS) -> str:
    """The table for docs/models.md, which a test compares with it.

    >>> print(as_markdown([model_named("GridCRF")]).splitlines()[-1])
    | every pixel of an image | [`GridCRF`](guides/graphs.md) | as GraphCRF; neighbouring ... | images in, ... |
    """
    rows = ["| what gets a label | model | it assumes | use it for |", "|---|---|---|---|"]
    labelled = ""
    for model in models:
        first = "" if model.labels == labelled else (labelled := model.labels)
        rows.append(f"| {first} | [`{model.name}`]({model.page}) | {model.assumes} | {model.take} |")
    return "\n".join(rows)


def example_of(estimator: type[Any]) -> str:
    """The part "Examples" of an estimator's docstring, or nothing.

    >>> class Coin:
    ...     '''Heads or tails.
    ...
    ...     Examples
    ...     --------
    ...     >>> Coin().throw()
    ...     'heads'
    ...     '''
    >>> example_of(Coin).splitlines()
    ['>>> Coin().throw()', "'heads'"]
    """
    _, found, rest = cleandoc(estimator.__doc__ or "").partition("Examples\n--------\n")
    return rest.strip() if found else ""
