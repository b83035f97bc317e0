"""Training of dense fields: gradients against differences, what is learnt, steps chosen on held-out images."""

from __future__ import annotations

import numpy as np
import pytest

from crfield.inference.dense import ACCURACIES, Places
from crfield.kernels import choice
from crfield.kernels.dense import NORMALISATIONS
from crfield.training.dense import FORMS, DenseProblem, Example, by_hand, choose_steps, fit_dense


def example(rng: np.random.Generator, shape: tuple[int, ...], labels: int = 3, *, weight: float = 1.0) -> Example:
    """Random scores and labels, one of them unknown and one of two."""
    places = Places.of_grid(shape)
    n = places.n_points
    allowed = np.zeros((n, labels), bool)
    allowed[np.arange(n), rng.integers(0, labels, n)] = True
    allowed[3] = True
    allowed[5, :2] = True
    colours, scores = 3 * rng.random((n, 2)), np.log(rng.dirichlet(np.ones(labels), n))
    return Example(Places(places.positions.astype(np.float64), shape), colours, scores, allowed, weight)


@pytest.mark.parametrize("how", NORMALISATIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("accuracy", ACCURACIES)
def test_gradient_is_that_of_differences(form: str, how: str, accuracy: str) -> None:
    """Certainty, compatibilities and widths, in double precision, which the NumPy body has."""
    rng = np.random.default_rng(0)
    with choice.use("numpy"):
        examples = [example(rng, (5, 6)), example(rng, (4, 3), weight=1.5)]
        start = by_hand(form, 3, [0.8, 1.1], [(1.7,), (2.3, 0.9)])
        problem = DenseProblem(examples, start, steps=3, normalization=how, accuracy=accuracy)
        theta = 0.1 * rng.normal(size=problem.n_weights)
        gradient, scratch = np.empty_like(theta), np.empty_like(theta)
        problem.evaluate(theta, gradient)
        for k in range(len(theta)):
            step = np.zeros_like(theta)
            step[k] = 1e-6
            slope = (problem.evaluate(theta + step, scratch) - problem.evaluate(theta - step, scratch)) / 2e-6
            assert gradient[k] == pytest.approx(slope, abs=1e-6 * max(1.0, np.abs(gradient).max()))


def test_compiled_gradient_is_the_same() -> None:
    rng = np.random.default_rng(0)
    examples = [example(rng, (9, 8)), example(rng, (4, 3, 5))]
    found = []
    for body in ("native", "numpy"):
        with choice.use(body):
            problem = DenseProblem(examples, by_hand("full", 3, [0.8, 1.1], [(1.7,), (2.3, 0.9)]), steps=4)
            gradient = np.empty(problem.n_weights)
            value = problem.evaluate(np.full(problem.n_weights, 0.05), gradient)
            found.append((value, gradient))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=2e-3 * np.abs(found[1][1]).max())


def drawn(seed: int, n: int) -> list[Example]:
    """Blocks of labels 0 and 1 with noisy scores; 2 is on their borders, where 0 and 1 never meet."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        truth = np.kron(rng.integers(0, 2, (3, 3)), np.ones((8, 8), int))
        truth[7::8] = truth[:, 7::8] = 2
        allowed = truth.reshape(-1, 1) == np.arange(3)
        scores = 1.2 * allowed + rng.normal(size=allowed.shape)
        scores -= np.logaddexp.reduce(scores, axis=1, keepdims=True)
        made.append(Example(Places.of_grid(truth.shape), np.zeros((truth.size, 1)), scores, allowed))
    return made


def test_training_lowers_the_loss_of_new_images() -> None:
    train, test = drawn(0, 3), drawn(1, 3)
    losses = {}
    for form in ("by hand", *FORMS):
        start = by_hand("potts" if form == "by hand" else form, 3, [1.0], [(2.0,)])
        problem = DenseProblem(train, start, steps=5)
        asked = DenseProblem(test, start, steps=5)
        if form != "by hand":
            found, result = fit_dense(problem, l2=1.0, tol=1e-3, max_iter=100)
            assert result.converged
            asked = DenseProblem(test, found, steps=5)
        theta = np.zeros(asked.n_weights)
        if form != "by hand":
            theta[0] = np.log(found.certainty)
        losses[form] = asked.evaluate(theta, np.empty_like(theta))
    assert losses["potts"] < losses["by hand"]
    assert losses["full"] < losses["potts"]


def test_steps_are_chosen_by_held_out_images() -> None:
    train, held = drawn(0, 3), drawn(1, 2)
    start = by_hand("potts", 3, [1.0], [(2.0,)])
    steps, losses = choose_steps(
        train, held, lambda some, t: DenseProblem(some, start, steps=t, learn_widths=False), l2=1.0, tol=1e-3
    )
    assert steps == min(losses, key=lambda t: losses[t])
    assert set(losses) == {1, 2, 5, 10}


def test_widths_out_of_all_proportion_are_no_option() -> None:
    problem = DenseProblem(drawn(0, 1), by_hand("potts", 3, [1.0], [(2.0,)]), steps=1)
    theta = np.zeros(problem.n_weights)
    theta[-1] = 10.0
    assert problem.evaluate(theta, np.empty_like(theta)) == np.inf
