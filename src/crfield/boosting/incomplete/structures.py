"""The forms that a hidden part may have, behind one interface.

    Values    one attribute, or several, each observed or missing       listed cell by cell: all losses
    Windows   a chain of tags                                           summed by forward–backward: exp, joint, hcrf
    Bag       points in the foreground or background                    summed point by point: exp, joint, hcrf

A form turns what a user gives into codes (`encode`), says of which data everything is known (`observed`), makes the
prior (`learn`, `beliefs`), and builds the loss of training (`loss`) and the model of prediction (`model`). *exp-mean*
needs only expected columns, which all have. In a model file a form is a header (`state`, `form_from_state`), and the
arrays of its learnt prior have the shapes that it says (`prior_shapes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from crfield.boosting.incomplete import prior as priors
from crfield.boosting.incomplete.cells import Cells
from crfield.boosting.incomplete.enumerated import Enumerated, EnumeratedLoss
from crfield.boosting.incomplete.factored import Factored, FactoredLoss
from crfield.boosting.incomplete.hidden.bag import BagPart, foreground_of
from crfield.boosting.incomplete.hidden.chain import HIDDEN, NO_PLACE, OUTSIDE, ChainPart, check_windows, column_count
from crfield.boosting.incomplete.hidden.values import as_table, learn_values, value_cells, value_codes
from crfield.data.labels import LabelCoder
from crfield.errors import FeatureError, InputError, ShapeError
from crfield.storage.state import State, refuse

Prior = list[np.ndarray]
MOST_COLUMNS = 2**40  # that a model file may claim


@dataclass(frozen=True)
class Draws:
    """Samples of the hidden part where it can be neither listed nor summed: how many, and the seed."""

    n_samples: int | None = None
    seed: int = 0

    def cells(self, part: BagPart) -> Cells:
        """The samples as cells."""
        if self.n_samples is None:
            raise InputError(
                "the normalised model p(y | x, h) does not factorise over a bag: use one of the losses 'joint', "
                "'exp', 'exp-mean', 'hcrf', and answer='joint' or 'expected'; or list n_samples= drawn foregrounds."
            )
        return part.draw(self.n_samples, np.random.default_rng(self.seed))


class Form(Protocol):
    """What all forms of a hidden part can do; N data, columns (N, D) of the data without labels of other steps."""

    @property
    def kind(self) -> str:
        """The word for it in model files."""
        ...

    @property
    def n_columns(self) -> int:
        """D₂."""
        ...

    def encode(self, hidden: Any, X: Any) -> np.ndarray:
        """Codes of what is known; ``hidden`` None is nothing."""
        ...

    def observed(self, codes: np.ndarray, X: Any) -> np.ndarray:
        """(N,) data of which everything is known."""
        ...

    def blank(self, codes: np.ndarray) -> np.ndarray:
        """The codes with everything hidden that is hidden anywhere."""
        ...

    def learn(self, columns: Any, codes: np.ndarray, X: Any, *, l2: float) -> Prior:
        """The arrays of a learnt prior."""
        ...

    def beliefs(self, given: Any, learnt: Prior | None, columns: Any, n: int) -> Prior:
        """q₀ as arrays: as given, else as learnt, else constant."""
        ...

    def loss(self, X: Any, columns: Any, codes: np.ndarray, beliefs: Prior, draws: Draws, **options: Any) -> Any:
        """The problem of training."""
        ...

    def model(
        self, X: Any, columns: Any, codes: np.ndarray, beliefs: Prior, draws: Draws, *, mixture: bool, **options: Any
    ) -> Enumerated | Factored:
        """The model of prediction; ``mixture`` where Σ_h q₀ p(y | x, h) is asked for."""
        ...

    def state(self) -> State:
        """A header."""
        ...

    def prior_shapes(self, width: int) -> list[tuple[int, ...]]:
        """Shapes of the arrays of a learnt prior, for data of ``width`` columns."""
        ...


@dataclass(frozen=True)
class Values:
    """Attributes with the values of ``coders``; ``interactions`` are columns of X conjoined with each value."""

    coders: tuple[LabelCoder, ...]
    several: bool = False
    interactions: tuple[int, ...] = ()
    kind: str = field(default="value", init=False)

    @property
    def n_columns(self) -> int:
        """Σ_a H_a (1 + I)."""
        return sum(coder.n_labels for coder in self.coders) * (1 + len(self.interactions))

    def encode(self, hidden: Any, X: Any) -> np.ndarray:
        """(N, A) codes, −1 where missing."""
        n = X.shape[0]
        if hidden is None:
            return np.full((n, len(self.coders)), HIDDEN, dtype=np.int64)
        table = as_table(hidden, n, several=self.several)
        if not table.shape[1]:
            return np.full((n, len(self.coders)), HIDDEN, dtype=np.int64)
        if table.shape[1] != len(self.coders):
            raise ShapeError(f"hidden must have {len(self.coders)} attributes as in training, got {table.shape[1]}.")
        return np.stack([value_codes(table[:, a], coder) for a, coder in enumerate(self.coders)], axis=1)

    def observed(self, codes: np.ndarray, X: Any) -> np.ndarray:
        """(N,) data without a missing attribute."""
        return np.asarray((codes >= 0).all(axis=1))

    def blank(self, codes: np.ndarray) -> np.ndarray:
        """All attributes missing."""
        return np.full_like(codes, HIDDEN)

    def learn(self, columns: Any, codes: np.ndarray, X: Any, *, l2: float) -> Prior:
        """A of (D, H_a) weights."""
        return [
            priors.learn_values(columns, codes[:, a], coder.n_labels, l2=l2) for a, coder in enumerate(self.coders)
        ]

    def beliefs(self, given: Any, learnt: Prior | None, columns: Any, n: int) -> Prior:
        """A of (N, H_a)."""
        sizes = [coder.n_labels for coder in self.coders]
        if given is None:
            if learnt is not None:
                return [priors.believed(weights, columns) for weights in learnt]
            return [np.full((n, size), 1.0 / size) for size in sizes]
        parts = list(given) if self.several else [given]
        if len(parts) != len(sizes):
            raise ShapeError(f"prior must be a list of {len(sizes)} arrays, one per attribute, got {len(parts)}.")
        return [priors.check_beliefs(part, (n, size)) for part, size in zip(parts, sizes, strict=True)]

    def _cells(self, X: Any, codes: np.ndarray, beliefs: Prior) -> Cells:
        return value_cells(codes, beliefs, X[:, list(self.interactions)] if self.interactions else None)

    def loss(self, X: Any, columns: Any, codes: np.ndarray, beliefs: Prior, draws: Draws, **options: Any) -> Any:
        """An `EnumeratedLoss`."""
        return EnumeratedLoss(columns, self._cells(X, codes, beliefs), **options)

    def model(
        self, X: Any, columns: Any, codes: np.ndarray, beliefs: Prior, draws: Draws, *, mixture: bool, **options: Any
    ) -> Enumerated | Factored:
        """An `Enumerated`."""
        return Enumerated(columns, self._cells(X, codes, beliefs), **options)

    def state(self) -> State:
        """The values of every attribute."""
        values = [coder.to_json() for coder in self.coders]
        told = {"values": values, "several": self.several, "interactions": list(self.interactions)}
        return State({"kind": self.kind, **told})

    def prior_shapes(self, width: int) -> list[tuple[int, ...]]:
        """A of (D, H_a)."""
        return [(width, coder.n_labels) for coder in self.coders]


@dataclass(frozen=True)
class Windows:
    """Chains of T tags, ``pairs`` of neighbours as columns too."""

    coder: LabelCoder
    n_places: int
    pairs: bool = False
    n_jobs: int = 1
    kind: str = field(default="chain", init=False)

    @property
    def n_columns(self) -> int:
        """T S, and (T − 1) S² with pairs."""
        return column_count(self.n_places, self.coder.n_labels, self.pairs)

    def encode(self, hidden: Any, X: Any) -> np.ndarray:
        """(N, T) codes, −1 where hidden, −2 outside."""
        n = X.shape[0]
        if hidden is None:
            return np.full((n, self.n_places), HIDDEN, dtype=np.int64)
        table = check_windows(hidden, n)
        if not table.shape[1]:
            return np.full((n, self.n_places), HIDDEN, dtype=np.int64)
        if table.shape[1] != self.n_places:
            raise ShapeError(
                f"windows of hidden must have {self.n_places} places as in training, got {table.shape[1]}."
            )
        outside = table == OUTSIDE
        table[outside] = None
        codes = np.stack([value_codes(table[:, d], self.coder) for d in range(self.n_places)], axis=1)
        codes[outside] = NO_PLACE
        return codes

    def observed(self, codes: np.ndarray, X: Any) -> np.ndarray:
        """(N,) windows without a hidden tag."""
        return np.asarray((codes != HIDDEN).all(axis=1))

    def blank(self, codes: np.ndarray) -> np.ndarray:
        """All tags hidden; what is outside stays outside."""
        return np.where(codes == NO_PLACE, NO_PLACE, HIDDEN)

    def learn(self, columns: Any, codes: np.ndarray, X: Any, *, l2: float) -> Prior:
        """T of (D, S) weights, then the links (S, S)."""
        tags = self.coder.n_labels
        weights = [priors.learn_values(columns, codes[:, d], tags, l2=l2) for d in range(self.n_places)]
        return [*weights, priors.learn_links(codes, tags)]

    def beliefs(self, given: Any, learnt: Prior | None, columns: Any, n: int) -> Prior:
        """Nodes (N or 1, T, S), then log links (S, S)."""
        tags = self.coder.n_labels
        if given is None and learnt is not None:
            nodes = np.stack([priors.believed(weights, columns) for weights in learnt[:-1]], axis=1)
            return [nodes, learnt[-1]]
        flat = np.zeros((tags, tags))
        if given is None:
            return [np.full((1, self.n_places, tags), 1.0 / tags), flat]
        node, link = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        nodes = priors.check_beliefs(node, (n, self.n_places, tags))
        if link is None:
            return [nodes, flat]
        link = np.asarray(link, dtype=np.float64)
        if link.shape != (tags, tags) or not np.isfinite(link).all() or (link < 0).any():
            raise ShapeError(f"the links of the prior must be finite and non-negative, of shape ({tags}, {tags}).")
        with np.errstate(divide="ignore"):
            return [nodes, np.log(link)]

    def _part(self, codes: np.ndarray, beliefs: Prior) -> ChainPart:
        with np.errstate(divide="ignore"):
            return ChainPart(codes, np.log(beliefs[0]), beliefs[1], self.pairs, self.n_jobs)

    def loss(self, X: Any, columns: Any, codes: np.ndarray, beliefs: Prior, draws: Draws, **options: Any) -> Any:
        """A `FactoredLoss`, or an `EnumeratedLoss` of expected columns."""
        part = self._part(codes, beliefs)
        if options["loss"] == "exp-mean":
            return EnumeratedLoss(columns, expected_cells(part), **options)
        if options["loss"] in ("mix", "jensen"):
            raise InputError(_no_chain(f"the loss {options['loss']!r}"))
        return FactoredLoss(columns, part, **options)

    def model(
        self, X: Any, columns: Any, codes: np.ndarray, beliefs: Prior, draws: Draws, *, mixture: bool, **options: Any
    ) -> Enumerated | Factored:
        """A `Factored`."""
        if mixture:
            raise InputError(_no_chain("answer='mixture'"))
        return Factored(columns, self._part(codes, beliefs), **options)

    def state(self) -> State:
        """Tags and places."""
        told = {"tags": self.coder.to_json(), "n_places": self.n_places, "pairs": self.pairs}
        return State({"kind": self.kind, **told})

    def prior_shapes(self, width: int) -> list[tuple[int, ...]]:
        """T of (D, S), then (S, S)."""
        tags = self.coder.n_labels
        return [*([(width, tags)] * self.n_places), (tags, tags)]


@dataclass(frozen=True)
class Bag:
    """Counts of K words whose points may lie in the foreground."""

    n_words: int
    kind: str = field(default="bag", init=False)

    @property
    def n_columns(self) -> int:
        """2K."""
        return 2 * self.n_words

    def encode(self, hidden: Any, X: Any) -> np.ndarray:
        """(nnz,) foreground counts, NaN where hidden."""
        if X.nnz and X.data.min() < 0:
            raise FeatureError("with structure='bag' X must hold counts of words, and some are negative.")
        return foreground_of(hidden, X)

    def observed(self, codes: np.ndarray, X: Any) -> np.ndarray:
        """(N,) images whose foreground is known."""
        return BagPart(X, codes, np.full(self.n_words, 0.5)).observed

    def blank(self, codes: np.ndarray) -> np.ndarray:
        """All foregrounds hidden."""
        return np.full_like(codes, np.nan)

    def learn(self, columns: Any, codes: np.ndarray, X: Any, *, l2: float) -> Prior:
        """π (K,)."""
        return [priors.learn_foreground(X, codes)]

    def beliefs(self, given: Any, learnt: Prior | None, columns: Any, n: int) -> Prior:
        """π (K,)."""
        if given is None:
            return learnt if learnt is not None else [np.full(self.n_words, 0.5)]
        try:
            found = np.broadcast_to(np.asarray(given, dtype=np.float64), (self.n_words,))
        except (TypeError, ValueError):
            raise ShapeError(f"the prior of a bag must be one number for each of {self.n_words} words.") from None
        if not ((found >= 0) & (found <= 1)).all():
            raise InputError("the prior of a bag must hold probabilities of the foreground, between 0 and 1.")
        return [np.ascontiguousarray(found)]

    def loss(self, X: Any, columns: Any, codes: np.ndarray, beliefs: Prior, draws: Draws, **options: Any) -> Any:
        """A `FactoredLoss`; for *mix* and *jensen* an `EnumeratedLoss` of samples."""
        part = BagPart(X, codes, beliefs[0])
        if options["loss"] == "exp-mean":
            return EnumeratedLoss(columns, expected_cells(part), **options)
        if options["loss"] in ("mix", "jensen"):
            return EnumeratedLoss(columns, draws.cells(part), **options)
        return FactoredLoss(columns, part, **options)

    def model(
        self, X: Any, columns: Any, codes: np.ndarray, beliefs: Prior, draws: Draws, *, mixture: bool, **options: Any
    ) -> Enumerated | Factored:
        """A `Factored`; an `Enumerated` of samples for mixtures."""
        part = BagPart(X, codes, beliefs[0])
        return Enumerated(columns, draws.cells(part), **options) if mixture else Factored(columns, part, **options)

    def state(self) -> State:
        """Its name: the words are the columns of X."""
        return State({"kind": self.kind})

    def prior_shapes(self, width: int) -> list[tuple[int, ...]]:
        """(K,)."""
        return [(self.n_words,)]


def form_from_state(state: State, width: int) -> Form:
    """The form whose `state` this is, on X of ``width`` columns; ModelFileError for whatever does not fit."""
    kind = state.word("kind", ("value", "chain", "bag"))
    if kind == "bag":
        return Bag(width)
    if kind == "chain":
        coder, places = LabelCoder.from_json(state.header.get("tags")), state.integer("n_places", least=1)
        if column_count(places, coder.n_labels, True) > MOST_COLUMNS:
            refuse("the model file claims a window of too many places")
        return Windows(coder, places, state.flag("pairs"))
    values, chosen = state.listed("values"), state.listed("interactions")
    if not values:
        refuse("the model file does not say what is hidden")
    if not all(type(column) is int and 0 <= column < width for column in chosen):
        refuse("the interactions of the model file are no columns of X")
    return Values(tuple(map(LabelCoder.from_json, values)), state.flag("several"), tuple(chosen))


def names_of(form: Form | None) -> list[Any]:
    """The values of each attribute, or the tags of a chain, in the order of their columns."""
    if isinstance(form, Values):
        return [coder.labels for coder in form.coders]
    return [form.coder.labels] if isinstance(form, Windows) else []


def expected_cells(part: Any) -> Cells:
    """One cell for each datum, with the columns that its part has on average under the prior."""
    columns = part.prior_columns()
    return Cells(np.arange(columns.shape[0] + 1), np.ones(columns.shape[0]), columns)


def chain_of(hidden: Any, n: int, given: Sequence[Any] | None) -> tuple[LabelCoder | None, int]:
    """The tags of some windows and their number of places."""
    table = check_windows(hidden, n) if hidden is not None else np.empty((n, 0), dtype=object)
    if given is not None:
        return LabelCoder.from_classes(given), int(table.shape[1])
    tags = [tag for tag in table.ravel().tolist() if tag is not None and tag != OUTSIDE]
    return (LabelCoder().fit([tags]) if tags else None), int(table.shape[1])


def values_of(
    hidden: Any,
    n: int,
    given: Sequence[Any] | None,
    *,
    several: bool,
    width: int,
    interactions: str | Sequence[int] | None,
) -> Values | None:
    """The attributes of some data with X of ``width`` columns; None where none of their values are known."""
    if hidden is None and given is None:
        return None
    table = as_table(hidden, n, several=several)
    values = [None] * table.shape[1] if given is None else list(given) if several else [given]
    if not table.shape[1]:
        table = np.full((n, len(values)), None, dtype=object)
    if len(values) != table.shape[1]:
        raise InputError(f"hidden_values must be {table.shape[1]} lists, one per attribute, got {len(values)}.")
    coders = [learn_values(table[:, a], known) for a, known in enumerate(values)]
    if None in coders and any(coders):
        raise InputError(
            f"attribute {coders.index(None)} is hidden in all data, so its values are not known. Leave it out, "
            "or name its values with hidden_values=."
        )
    if not coders or None in coders:
        return None
    asked = () if interactions is None else interactions
    chosen = list(range(width)) if isinstance(asked, str) else list(asked)
    if any(not isinstance(column, Integral) or not -width <= column < width for column in chosen):
        raise InputError(f"interactions must be columns of X, 0 … {width - 1}, got {chosen}.")
    return Values(tuple(c for c in coders if c), several, tuple(int(c) % width for c in chosen))


def _no_chain(what: str) -> str:
    return (
        f"{what} needs the normalised model p(y | x, h), which does not factorise along a chain of tags. Use one of "
        "the losses 'joint', 'exp', 'exp-mean', 'hcrf', and answer='joint' or 'expected'."
    )
