"""The options of the command line, each declared once.

A verb is a function whose parameters are annotated with these. Options that several verbs share as a whole are a
`Group`: the verb takes one value, ``files: Files`` or ``chain: Annotated[dict, chain_parameters("l1", "l2")]``, and
`spread` puts the options in its place, so that typer sees an ordinary function.

An option that is a parameter of `ChainCRF` is not described again: its type, default and check come from the
estimator's declaration, and its help from the estimator's docstring wherever the first sentence there suits a line of
``--help``. So a wrong value is refused before any file is read, in the words of the library.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer

from crfield.cli.messages import offered, one_of
from crfield.cli.paths import READS, WRITES
from crfield.cli.reading import Format
from crfield.cli.scores import Scheme
from crfield.core.checks import Choice
from crfield.core.constraints import SCHEMES
from crfield.core.parameters import declared_parameters
from crfield.errors import InputError
from crfield.estimators.chain.crf import ChainCRF

DATA, MODEL, TRAINING, RUN = PANELS = "Data", "Model", "Training", "Run"  # the parts of --help, in this order


class Features(StrEnum):
    """What features are made of: words, windows of samples, or tracks by a specification that has a name."""

    template = "template"
    text = "text"
    sensors = "sensors"
    tag_small = "tag-small"
    tag_large = "tag-large"
    soccer = "soccer"


SPECIFICATIONS = (Features.tag_small, Features.tag_large, Features.soccer)


def _features(given: str | None) -> str | None:
    """A kind of features, or the path of a file of the feature language, which has a dot or a slash."""
    if given is None or given in tuple(Features):
        return None if given is None else Features(given)
    return given if any(sign in given for sign in "./\\") else one_of(given, [str(kind) for kind in Features])


def data_option(help: str, **facts: Any) -> Any:
    """An option in the part of --help on data."""
    return typer.Option(help=help, rich_help_panel=DATA, **facts)


# ---------------------------------------------------------------- files

_LABELLED = typer.Argument(metavar="DATA", help="Labelled files, plain or gzip; - for standard input.")
LabelledFiles = Annotated[list[str], _LABELLED, READS]
LabelledFilesOrNone = Annotated[list[str] | None, _LABELLED, READS]
_MODEL = typer.Option("--model", "-m", metavar="FILE", help="The model file.", rich_help_panel=DATA)
ModelFile = Annotated[str, _MODEL, READS]
ModelFileOrNone = Annotated[str | None, _MODEL, READS]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="The model file."), READS]

TemplateOption = Annotated[
    str | None,
    typer.Option(
        "--template",
        "-t",
        metavar="FILE",
        help="CRF++ template for column files. Without one every column is read two steps either way.",
        rich_help_panel=DATA,
    ),
    READS,
]
FormatOption = Annotated[Format, data_option(f"What the files hold: {', '.join(Format)}.", metavar="FORMAT")]
LabelColumnOption = Annotated[int, data_option("Column of the labels, from 0; -1 is the last.", metavar="N")]
FeaturesOption = Annotated[
    str | None,
    data_option(
        "Features: of words template (default) or text (windows, shapes, affixes, lists); of tables sensors "
        f"(measures of windows); of tracks a file of the feature language, or {', '.join(SPECIFICATIONS)}.",
        metavar="KIND",
        callback=_features,
        autocompletion=offered(lambda: Features),
    ),
    READS,
]
LexiconOption = Annotated[
    list[str] | None,
    data_option(
        "With --features text: a list of entries, one a line, called as its file; may be given again.", metavar="FILE"
    ),
    READS,
]
ClustersOption = Annotated[
    str | None, data_option("With --features text: bit strings of words (Brown clusters).", metavar="FILE"), READS
]
ColumnsOption = Annotated[
    str | None,
    data_option(
        "Columns to read: of CoNLL-U form, lemma, upos, feats.Number, …; of tables those with readings.",
        metavar="A,B,…",
        show_default="form; all numbers",
    ),
]
LabelOption = Annotated[
    str | None,
    data_option(
        "Label column: of CoNLL-U upos, xpos, upos+feats, …; of tables its name.",
        metavar="NAME",
        show_default="upos; label",
    ),
]
SchemeOption = Annotated[
    Scheme,
    data_option(
        f"Tag scheme of the spans to score: {', '.join(Scheme)}; auto looks at the labels, none scores no spans.",
        metavar="SCHEME",
    ),
]
_KNOWN = "An error, not a warning, where most steps have no known feature."
StrictFeatures = Annotated[bool, typer.Option("--strict-features", help=_KNOWN, rich_help_panel=DATA)]
StrictOption = Annotated[bool, typer.Option("--strict-features", "--strict", help=_KNOWN, rich_help_panel=DATA)]

DevFile = Annotated[str | None, data_option("Labelled file to score the model on.", metavar="FILE"), READS]

# ---------------------------------------------------------------- runs


def _threads(count: int | None) -> int:
    return -1 if count is None else count


_FACTS: dict[str, Any] = {"min": 1, "metavar": "N", "rich_help_panel": RUN}
AllThreads = Annotated[  # a verb gets -1 for all, as ``n_jobs`` says it
    int | None, typer.Option("--threads", help="Threads.", show_default="all processors", callback=_threads, **_FACTS)
]
OneThread = Annotated[int, typer.Option("--threads", help="Threads.", **_FACTS)]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Random seed.", rich_help_panel=RUN)]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No notes on the run: only warnings and errors.", rich_help_panel=RUN)
]
Json = Annotated[bool, typer.Option("--json", help="Report as one JSON object.", rich_help_panel=RUN)]

# ---------------------------------------------------------------- groups


@dataclass(frozen=True)
class Group:
    """Options that a verb takes as one value, which ``make`` makes of them."""

    make: Callable[..., Any]
    options: tuple[inspect.Parameter, ...]

    @classmethod
    def of(cls, kind: type) -> Group:
        """A dataclass whose fields are annotated as options."""
        hints = get_type_hints(kind, include_extras=True)
        return cls(kind, tuple(_keyword(each.name, hints[each.name], each.default) for each in fields(kind)))


def _keyword(name: str, hint: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def spread(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with the options of its groups as parameters of its own, sorted by the parts of --help."""
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, Group] = {}
    options: list[inspect.Parameter] = []
    for each in inspect.signature(verb).parameters.values():
        group = next((part for part in get_args(hints[each.name]) if isinstance(part, Group)), None)
        if group is None:
            options.append(each.replace(annotation=hints[each.name]))
        else:
            groups[each.name] = group
            options += group.options

    @wraps(verb)
    def called(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group.make(**{each.name: values.pop(each.name) for each in group.options})
        verb(**values)

    del called.__wrapped__  # whoever looks at the parameters is to see those of the command line
    called.__signature__ = inspect.Signature(sorted(options, key=_part))  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in options}
    return called


def _part(option: inspect.Parameter) -> tuple[int, int]:
    panels = [getattr(part, "rich_help_panel", None) for part in get_args(option.annotation)]
    return option.kind, next((PANELS.index(panel) + 1 for panel in panels if panel in PANELS), 0)


# ---------------------------------------------------------------- parameters of ChainCRF

_CHAIN = {  # part of --help, and its words where those of the docstring are about more than the one parameter
    "l1": (MODEL, "Strength of the l1 penalty."),
    "l2": (MODEL, "Strength of the l2 penalty (twice CRFsuite's c2)."),
    "min_count": (MODEL, "Features seen on fewer steps are dropped."),
    "feature_pairs": (MODEL, "Which (feature, label) pairs have a weight"),
    "transition_pairs": (MODEL, "Which pairs of neighbouring labels have a weight"),
    "intercept": (MODEL, "A score for each label."),
    "boundaries": (MODEL, "Scores for the first and the last label."),
    "decode": (MODEL, "Best labelling as a whole (viterbi, also called map), or best label of each step (marginal)."),
    "constraints": (MODEL, "Tag scheme whose rules every labelling keeps"),
    "order": (MODEL, ""),
    "objective": (TRAINING, "What is minimised"),
    "solver": (TRAINING, "Optimiser"),
    "tol": (TRAINING, ""),
    "max_iter": (TRAINING, ""),
    "checkpoint": (
        TRAINING,
        "Keep the state of training here; the same command resumes from it. Removed at the end.",
    ),
    "patience": (TRAINING, "Early stopping: end after N steps without a better likelihood of the --dev file."),
}
_METAVARS: dict[Any, str] = {float: "X", int: "N", str: "NAME", "checkpoint": "FILE", "constraints": "SCHEME"}


def chain_parameters(*names: str, **defaults: Any) -> Group:
    """Parameters of `ChainCRF` as options; those with a default of the verb's own are named with it.

    The value is a dict of parameters. What has no default on the command line and was not given is not in it.

    >>> group = chain_parameters("order", max_iter=500)
    >>> [(each.name, each.default) for each in group.options]
    [('order', 1), ('max_iter', 500)]
    >>> group.make(order=2, max_iter=None)
    {'order': 2}
    """
    found = {each.name: each.default for each in fields(ChainCRF) if each.name in names} | defaults
    options = (_keyword(name, _chain_option(name, found[name]), found[name]) for name in (*names, *defaults))
    return Group(lambda **given: {name: value for name, value in given.items() if value is not None}, tuple(options))


def _chain_option(name: str, default: Any) -> Any:
    """The annotation of the option for a parameter."""
    kind = _TYPES[name] if _TYPES[name] in (bool, int, float) else str  # the command line has no other values
    check = declared_parameters(ChainCRF)[name].check
    known = check.names if isinstance(check, Choice) else SCHEMES if name == "constraints" else ()
    panel, words = _CHAIN[name]
    facts: dict[str, Any] = {"help": words or _first_sentence(name), "rich_help_panel": panel}
    if known and not facts["help"].endswith("."):
        facts["help"] += f": {', '.join(known)}."
    if kind is not bool:
        facts["metavar"] = _METAVARS.get(name) or _METAVARS[kind]
        facts["callback"] = lambda value: _checked(name, value, known)
    if known:
        facts["autocompletion"] = offered(lambda: known)
    option = typer.Option(**facts)
    value = kind | None if default is None else kind
    return Annotated[value, option, WRITES] if name == "checkpoint" else Annotated[value, option]


_TYPES = get_type_hints(ChainCRF)


def _checked(name: str, value: Any, known: Iterable[str]) -> Any:
    """The value, if the estimator takes it; a wrong command line otherwise."""
    if value is None:
        return None
    if known:
        return one_of(value, list(known))
    check = declared_parameters(ChainCRF)[name].check
    try:
        if check is not None:
            check("it", value)
    except InputError as error:
        raise typer.BadParameter(str(error)) from None
    return value


def _first_sentence(name: str) -> str:
    """What the docstring of `ChainCRF` says first of a parameter.

    >>> _first_sentence("order")
    'How many previous labels each label depends on.'
    """
    entry = re.search(rf"^ *{name} : .*\n((?: {{8}}.*\n)+)", ChainCRF.__doc__ or "", re.M)
    told = "" if entry is None else " ".join(entry[1].split())
    return re.split(r"(?<=\.)\s", told, maxsplit=1)[0].replace("``", "")
