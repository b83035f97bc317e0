"""`DenseCRF`: images, volumes or points in which every pair of points may speak to each other.

    p(y | x) ∝ exp( Σ_i certainty · log p_i(y_i) + ½ Σ_{i≠j} Σ_k C_k(y_i, y_j) · K_k(i, j) )

`GridCRF` joins a pixel to its neighbours, and what is far apart hears of each other only step by step. Here two
kernels join all pairs: nearness, and nearness with likeness of colour, so that a label spreads over what looks alike
and stops where the colour changes (Krähenbühl & Koltun 2011). p_i comes from any classifier: one that looks at the
pixel's own channels, trained within ``fit``, or from outside, as probabilities of a network; or from scribbles.

What is usually set by hand is learnt (Krähenbühl & Koltun 2013): how sure p_i is, the compatibility of labels in
either kernel, and the widths, by the gradient through the steps of mean field that will answer
(`crfield.training.dense`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from crfield.core.checks import Check, flag, integer, is_integer, number, one_of, share
from crfield.core.parameters import learnt, parameter
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.core.typing import Graphlike, Labels, Weights
from crfield.data.labels import LabelCoder
from crfield.errors import ConvergenceWarning, InputError
from crfield.estimators.base.fitted import Fitted
from crfield.estimators.base.groups import PENALTY, TOLERANCE, Optimised, Threaded
from crfield.estimators.base.images import flat_labels, shaped
from crfield.estimators.base.sequences import StructuredData, check_weights, right_share
from crfield.estimators.base.sklearn_parts import estimator_with
from crfield.estimators.dense.local import LocalClassifier, fit_local
from crfield.estimators.dense.model import DenseModel, check_reach
from crfield.estimators.dense.points import AXES, Points, read_points, read_unary
from crfield.estimators.export.step_scores import StepScorer
from crfield.estimators.export.streaming import Streaming
from crfield.inference.dense import ACCURACIES, UPDATES, DenseBeliefs, DenseMeanField
from crfield.kernels.dense import NORMALISATIONS
from crfield.training.dense import FORMS, DenseParameters, DenseProblem, Example, by_hand, choose_steps, fit_dense

WIDTH = number(above=0, most=1e6, meaning="a standard deviation")
WEIGHT = number(-1e4, most=1e4, meaning="what labels that agree gain")
SWEEPS = Check(
    "'auto' or an integer from 0 to 1,000",
    lambda value: (isinstance(value, str) and value == "auto") or (is_integer(value) and 0 <= value <= 1000),
)
USUAL = 5  # sweeps where there is one image, and nothing to choose them by
TO_SETTLE = 1000  # most sweeps of the convergent update
SETTLED = 1e-3  # no belief moves by more
COLOUR_SHARE = 0.25  # of the deviation of all colours: the width of colours, where none is given
COLOUR_WIDTH = 13.0  # where there are no images to take it from


class DenseCRF(
    Streaming, StructuredData, Fitted[DenseModel], Threaded, Optimised, kind="dense_crf", model=DenseModel
):
    """Fully connected conditional random field with Gaussian kernels, for images, volumes and point sets.

    X is a list of images (H, W) or (H, W, C), of volumes, or of sets of points; y has an array of labels for each, in
    which ``None`` is unknown and a set is one of several. ``unary``, in ``fit`` and in all questions, has for each
    image probabilities (H, W, L) with labels in the order of ``classes_``, or an image of labels, scribbles, some
    unknown.

    Parameters
    ----------
    local : scikit-learn classifier with ``predict_proba``, optional
        What a pixel's channels say of its label where no unary is given; logistic regression if None. Model files
        hold logistic regression alone.
    form : "image", "volume" or "points"
        What X is a list of.
    n_positions : int
        How many of the first columns of points are positions; the rest are their colours.
    compatibility : "potts", "diagonal" or "full"
        What labels have to do with each other in a kernel: like labels attract each other equally, each by a number
        of its own, or every pair of labels has one.
    normalization : "symmetric", "before", "after" or "none"
        How a kernel is divided by its row sums, so that points with many neighbours do not hear more than others.
    smooth_width, smooth_weight : float
        Of the kernel of positions, in pixels; where training starts.
    position_width, colour_width, colour_weight : float
        Of the kernel of positions and colours. A ``colour_width`` of None is a quarter of the deviation of the
        colours.
    learn_widths : bool
        Whether widths are learnt too, or certainty and compatibilities alone.
    sweeps : "auto" or int
        Steps of mean field. "auto" tries 1, 2, 5 and 10 on held-out images.
    update : "parallel" or "convergent"
        "convergent" goes on until beliefs have settled, and never oscillates.
    accuracy : "standard" or "high"
        "standard" filters as pydensecrf does; "high" is two times nearer to the Gaussian and takes nearly
        twice as long.
    certainty : float
        Probability of the label of a scribble.
    unknown : label, optional
        What stands for "unknown" in scribbles, besides None.
    classes : list of labels, optional
        All labels, in the order of the columns of unary; those of y, sorted, if None.
    cv : int
        Folds of images in which the local classifier's opinions for training are made.
    validation_fraction : float
        Share of the images that choose ``sweeps``.
    l2 : float
        Ridge that pulls to the values set here; changes are relative to them.
    decode : "marginal"
        Each pixel gets its most probable label.
    n_jobs, tol, max_iter, verbose, callback
        As in `GridCRF`.

    Attributes
    ----------
    certainty_ : float
        Factor of the log-probabilities of single pixels.
    compatibilities_, widths_ : list
        Of the kernel of positions, and of that of positions and colours.
    sweeps_ : int
        Steps of mean field that answer.
    local_ : classifier or None
        The classifier of single pixels.

    Examples
    --------
    >>> import numpy as np
    >>> from crfield import DenseCRF
    >>> rng = np.random.default_rng(0)
    >>> truth = [np.kron(rng.integers(0, 2, (2, 2)), np.ones((6, 6), int)) for _ in range(6)]
    >>> images = [t + rng.normal(scale=0.6, size=t.shape) for t in truth]
    >>> model = DenseCRF(sweeps=5).fit(images, truth)
    >>> model.score(images, truth) > 0.95
    True
    >>> model.predict_proba(images)[0].shape
    (12, 12, 2)

    Probabilities of a network need no training data:

    >>> probabilities = np.full((12, 12, 2), 0.5)
    >>> by_hand = DenseCRF(colour_width=0.5).untrained(["sea", "sky"])
    >>> by_hand.predict(images[:1], unary=[probabilities])[0].shape
    (12, 12)
    """

    local: Any = parameter(estimator_with("predict_proba", "a classifier"), default=None, kw_only=False)
    form: str = parameter(one_of(*AXES), default="image")
    n_positions: int = parameter(integer(1, most=10), default=3)
    compatibility: str = parameter(one_of(*FORMS), default="potts")
    normalization: str = parameter(one_of(*NORMALISATIONS), default="symmetric")
    smooth_width: float = parameter(WIDTH, default=3.0)
    smooth_weight: float = parameter(WEIGHT, default=1.0)
    position_width: float = parameter(WIDTH, default=60.0)
    colour_width: float | None = parameter(WIDTH | None, default=None)
    colour_weight: float = parameter(WEIGHT, default=3.0)
    learn_widths: bool = parameter(flag, default=True)
    sweeps: str | int = parameter(SWEEPS, default="auto")
    update: str = parameter(one_of(*UPDATES), default="parallel")
    accuracy: str = parameter(one_of(*ACCURACIES), default="standard")
    certainty: float = parameter(share("of a scribble's label"), default=0.7)
    unknown: Any = parameter(default=None)
    classes: Sequence[Any] | None = parameter(default=None, stored=False)
    cv: int = parameter(integer(1), default=5)
    validation_fraction: float = parameter(share("of the images"), default=0.25)
    l2: float = parameter(PENALTY, default=10.0)
    decode: str = parameter(one_of("marginal"), default="marginal")
    tol: float = parameter(TOLERANCE, default=1e-3)
    max_iter: int = parameter(integer(1, meaning="the most steps of the optimiser"), default=100)

    certainty_: float = learnt()
    compatibilities_: list[np.ndarray] = learnt()
    widths_: list[tuple[float, ...]] = learnt()
    sweeps_: int = learnt()
    local_: Any = learnt()

    def _check_together(self) -> None:
        if self.update == "convergent" and self.normalization in ("before", "after"):
            raise InputError(
                f"update='convergent' needs a symmetric kernel, and normalization={self.normalization!r} makes "
                "one that is not. Use 'symmetric' or 'none'."
            )

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Graphlike, y: Labels, sample_weight: Weights = None, *, unary: Any = None) -> Self:
        """Learn from images X and images of labels y; ``sample_weight`` has one number for each image."""
        self.check()
        points = read_points(X, self.form, int(self.n_positions))
        flat = flat_labels(y, [one.shape for one in points])
        weight = np.ones(len(points)) if sample_weight is None else check_weights(sample_weight, len(points))
        kept = np.flatnonzero(weight).tolist()  # an image of weight 0 is not there at all
        given = None if unary is None else [unary[k] for k in kept] if len(unary) == len(points) else unary
        points, flat, weight = [points[k] for k in kept], [flat[k] for k in kept], weight[kept]
        labels = LabelCoder().fit(flat) if self.classes is None else LabelCoder.from_classes(list(self.classes))
        codes, allowed = labels.encode(flat, [one.n_points for one in points])
        if not points:
            raise InputError("X holds no images at all; at least one is needed to train.")
        local, scores = self._opinions(points, labels, codes, weight, given)
        start = self._start(points, labels.n_labels)
        for image, one in enumerate(points):
            check_reach(one, start, image)
        examples = self._examples(points, scores, labels, codes, allowed, weight)
        sweeps = self._choose(examples, start)
        with self._watched() as after:
            problem = self._problem(examples, start, sweeps)
            found, result = fit_dense(
                problem, l2=float(self.l2), tol=float(self.tol), max_iter=int(self.max_iter), callback=after
            )
        model = self._model_of(labels, local, found, sweeps, points[0].colours.shape[1])
        self._learn(model, result)
        self._warn_unless_converged(
            result, "Raise max_iter, tol or l2, or leave widths as they are (learn_widths=False)"
        )
        return self

    def untrained(self, classes: Sequence[Any]) -> Self:
        """The model as its parameters say, without training: for unaries that are given with every question.

        >>> DenseCRF(smooth_weight=3.0, sweeps=5).untrained(["sea", "sky"]).sweeps_
        5
        """
        self.check()
        labels = LabelCoder.from_classes(list(classes))
        start = self._start([], labels.n_labels)
        self.objective_, self.n_iter_, self.n_evaluations_ = float("nan"), 0, 0
        self.converged_, self.stop_reason_, self.history_ = False, "not trained", []
        return self._learn(self._model_of(labels, None, start, self._sweeps(), None))

    def _model_of(
        self,
        labels: LabelCoder,
        local: LocalClassifier | None,
        parameters: DenseParameters,
        sweeps: int,
        n_colours: int | None,
    ) -> DenseModel:
        return DenseModel(labels, local, parameters, sweeps, n_colours, self.normalization, self.accuracy)

    def _sweeps(self) -> int:
        return USUAL if isinstance(self.sweeps, str) else int(self.sweeps)

    def _opinions(
        self, points: list[Points], labels: LabelCoder, codes: np.ndarray, weight: np.ndarray, unary: Any
    ) -> tuple[LocalClassifier | None, list[np.ndarray]]:
        """The classifier of single points, if there is no unary, and log-probabilities (N, L) of each image."""
        if unary is not None:
            return None, read_unary(unary, points, labels, certainty=self.certainty, unknown=self.unknown)
        colours = np.concatenate([np.asarray(one.colours, np.float64) for one in points])
        image_of = np.repeat(np.arange(len(points)), [one.n_points for one in points])
        each = None if (weight == weight[0]).all() else weight[image_of]
        local, table = fit_local(self.local, colours, codes, image_of, each, labels.n_labels, folds=int(self.cv))
        return local, np.split(table, np.cumsum([one.n_points for one in points])[:-1])

    def _start(self, points: list[Points], n_labels: int) -> DenseParameters:
        """The parameters that are set by hand."""
        n_colours = points[0].colours.shape[1] if points else 1
        weights = [float(self.smooth_weight)]
        widths: list[tuple[float, ...]] = [(float(self.smooth_width),)]
        if n_colours:
            weights.append(float(self.colour_weight))
            widths.append((float(self.position_width), self._colour_width(points)))
        return by_hand(self.compatibility, n_labels, weights, widths)

    def _colour_width(self, points: list[Points]) -> float:
        if self.colour_width is not None:
            return float(self.colour_width)
        if not points:
            return COLOUR_WIDTH
        colours = np.concatenate([np.asarray(one.colours, np.float64) for one in points])
        deviation = float(np.sqrt(colours.var(axis=0).mean()))
        return COLOUR_SHARE * deviation if deviation > 0 else 1.0

    def _examples(
        self,
        points: list[Points],
        scores: list[np.ndarray],
        labels: LabelCoder,
        codes: np.ndarray,
        allowed: np.ndarray | None,
        weight: np.ndarray,
    ) -> list[Example]:
        if allowed is None:
            allowed = np.zeros((len(codes), labels.n_labels), bool)
            allowed[np.arange(len(codes)), codes] = True
        tables = np.split(allowed, np.cumsum([one.n_points for one in points])[:-1])
        return [
            Example(one.places, one.colours, own, table, float(w))
            for one, own, table, w in zip(points, scores, tables, weight)
        ]

    def _problem(self, examples: Sequence[Example], start: DenseParameters, sweeps: int) -> DenseProblem:
        return DenseProblem(
            examples,
            start,
            steps=sweeps,
            normalization=self.normalization,
            accuracy=self.accuracy,
            learn_widths=bool(self.learn_widths),
            n_jobs=self._jobs,
        )

    def _choose(self, examples: list[Example], start: DenseParameters) -> int:
        """Sweeps: as given, or those that do best on every so many images."""
        if self.sweeps != "auto" or len(examples) < 2:
            return self._sweeps()
        every = max(2, round(1 / float(self.validation_fraction)))
        held = [example for k, example in enumerate(examples) if k % every == every - 1] or examples[-1:]
        rest = [example for example in examples if not any(example is other for other in held)]
        return choose_steps(
            rest,
            held,
            lambda some, steps: self._problem(some, start, steps),
            l2=self.l2,
            tol=self.tol,
        )[0]

    def _show(self, model: DenseModel) -> None:
        super()._show(model)
        own = model.parameters
        self.certainty_, self.sweeps_ = own.certainty, model.sweeps
        self.compatibilities_, self.widths_ = list(own.compatibilities), list(own.widths)
        self.local_ = None if model.local is None else model.local.classifier

    # --------------------------------------------------------------- prediction

    def infer(self, X: Graphlike, unary: Any = None) -> list[DenseBeliefs]:
        """Beliefs (N, L) of every image, with the bound after each sweep and whether they have settled.

        >>> model = DenseCRF(sweeps=3, colour_width=1.0).untrained([0, 1])
        >>> found = model.infer([np.zeros((2, 2))], unary=[np.full((2, 2, 2), [0.4, 0.6])])[0]
        >>> found.node.shape, len(found.bound), found.converged
        ((4, 2), 4, False)
        """
        return self._inferred(X, unary, watch=True)[0]

    def _inferred(self, X: Graphlike, unary: Any, *, watch: bool) -> tuple[list[DenseBeliefs], list[Points]]:
        model = self._fitted
        points = read_points(X, self.form, int(self.n_positions), model.n_colours)
        if unary is not None:
            scores = read_unary(unary, points, model.labels, certainty=self.certainty, unknown=self.unknown)
        elif model.local is None:
            raise InputError(
                "this model has no classifier of its own, because it was made for unaries: write "
                "predict(X, unary=probabilities), or fit it without unary."
            )
        else:
            local = model.local
            scores = [local.opinions(np.asarray(one.colours, np.float64)) for one in points]
        settles = self.update == "convergent"
        engine = DenseMeanField(
            self.update,
            TO_SETTLE if settles else model.sweeps,
            SETTLED if settles else 0.0,
            watch or settles,
            self._jobs,
        )
        found = []
        for image, (one, own) in enumerate(zip(points, scores)):
            found.append(engine.infer(model.field(one, own, image, n_jobs=self._jobs)))
            if settles and not found[-1].converged:
                warnings.warn(
                    f"image {image}: beliefs had not settled after {found[-1].steps} sweeps (the last moved one by "
                    f"{found[-1].change:.2g}); they are rough. Use update='parallel' for so many sweeps and no more.",
                    ConvergenceWarning,
                    stacklevel=3,
                )
        return found, points

    def _probabilities(self, X: Graphlike, unary: Any) -> tuple[list[np.ndarray], list[Points]]:
        """(N, L) beliefs of each image, in double precision and summing to one."""
        found, points = self._inferred(X, unary, watch=False)
        rows = [beliefs.node.astype(np.float64) for beliefs in found]
        return [own / own.sum(axis=1, keepdims=True) for own in rows], points

    def predict(self, X: Graphlike, unary: Any = None) -> np.ndarray:
        """Labels of every pixel: a 1-D object array with an array of labels of the shape of each image."""
        tables, points = self._probabilities(X, unary)
        codes = [self.classes_[own.argmax(axis=1)] for own in tables]
        return shaped(codes, [one.shape for one in points])

    def predict_proba(self, X: Graphlike, unary: Any = None) -> np.ndarray:
        """Marginal probabilities: a 1-D object array of arrays (H, W, L), labels as ``classes_``."""
        tables, points = self._probabilities(X, unary)
        return shaped(tables, [one.shape for one in points])

    def predict_marginals(self, X: Graphlike, unary: Any = None) -> list[list[dict[Any, float]]]:
        """Marginal probabilities as one dict ``{label: probability}`` for each pixel, row after row."""
        labels = self._fitted.labels.labels
        return [[dict(zip(labels, row)) for row in own.tolist()] for own in self._probabilities(X, unary)[0]]

    def log_prob(self, X: Graphlike, y: Labels, *, unary: Any = None) -> np.ndarray:
        """(B,) Σ_i log q_i(y_i) of every image, what training maximises; for a set of labels that of all of them."""
        tables, points = self._probabilities(X, unary)
        mask = self._target(y, points).mask
        parts = np.split(mask, np.cumsum([one.n_points for one in points])[:-1]) if points else []
        kept = [np.maximum((own * allowed).sum(axis=1), 1e-300) for own, allowed in zip(tables, parts)]
        return np.array([min(float(np.log(own).sum()), 0.0) for own in kept])

    def score(self, X: Graphlike, y: Labels, sample_weight: Weights = None, *, unary: Any = None) -> float:
        """Share of pixels whose label is predicted right; pixels of unknown label are left out."""
        tables, points = self._probabilities(X, unary)
        codes = np.concatenate([own.argmax(axis=1) for own in tables]) if tables else np.zeros(0, np.int64)
        return right_share(codes, self._target(y, points), sample_weight)

    def _target(self, y: Labels, points: list[Points]) -> Target:
        lengths, labels = [one.n_points for one in points], self._fitted.labels
        codes, allowed = labels.encode(flat_labels(y, [one.shape for one in points]), lengths)
        return Target(Chains.from_lengths(lengths), labels.n_labels, codes, allowed)

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        self._fitted  # noqa: B018  (says so where nothing is fitted)
        raise InputError("DenseCRF cannot stream: its points have no order in time. Use predict.")
