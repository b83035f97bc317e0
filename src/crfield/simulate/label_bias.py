"""Two small machines in which local normalisation goes wrong: rib or rob, and five states with unequal ways out.

**Rib or rob** (Lafferty, McCallum & Pereira 2001, *Conditional random fields*, section 2 and figure 1; after Bottou
1991). A word is written by one of two branches of states that meet at the end,

    start ─ r ─▶ 1 ─ i ─▶ 2 ─ b ─▶ 3         start ─ r ─▶ 4 ─ o ─▶ 5 ─ b ─▶ 3

and each state writes its own letter with probability 29/32 and each of the other three with 1/32. Only the letter in
the middle tells the branches apart, and there a locally normalised model cannot listen any more: after state 1 comes
state 2, with probability one whatever is read.

**Five states** (the lecture on maximum-entropy Markov models and conditional random fields): state 1 has two ways on,
state 2 has five. At every step state 2 holds on to itself or is the favourite of state 1, yet the most probable path
of the locally normalised model is 1 → 1 → 1 → 1, because probability that is divided among two stays larger than
probability divided among five. As potentials the same tables can say how much a transition is preferred to chance,
p(j | i) times the number of ways out of i; any factor of a row is lost on the local model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.chain import ChainEngine

LETTERS = "ribo"
STATES = ("1", "2", "3", "4", "5")
_OWN = np.array([0, 1, 2, 0, 3])  # the letter of each state
_BRANCHES = np.array([[0, 1, 2], [3, 4, 2]])

# p(next | state) of the figure between observations 1–2, 2–3 and 3–4, for states 1 and 2; 3 to 5 have no way on.
_FIGURE = (
    ((0.4, 0.6, 0.0, 0.0, 0.0), (0.2, 0.2, 0.2, 0.2, 0.2)),
    ((0.45, 0.55, 0.0, 0.0, 0.0), (0.2, 0.3, 0.1, 0.1, 0.3)),
    ((0.5, 0.5, 0.0, 0.0, 0.0), (0.1, 0.3, 0.2, 0.2, 0.2)),
)


@dataclass(frozen=True, eq=False, repr=False)
class RibRob:
    """Words as read, letter by letter, and the states that wrote them.

    >>> world = make_rib_rob(3, noise=0.0)
    >>> ["".join(letter for (letter,) in word) for word in world.letters], world.labels[0]
    (['rob', 'rib', 'rib'], ['4', '5', '3'])
    """

    letters: list[list[list[str]]]  # features of each step: its letter
    labels: list[list[str]]
    p_rib: float
    noise: float

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"<RibRob: {len(self)} words, p(rib) = {self.p_rib:g}, noise {self.noise:g}>"

    @cached_property
    def potentials(self) -> Potentials:
        """The machine that made the data: log p(letter | state), and which state may follow which."""
        chains = Chains.from_lengths([3] * len(self))
        read = np.array([LETTERS.index(letter) for word in self.letters for (letter,) in word], dtype=np.int64)
        emits = np.full((5, 4), self.noise / 3)
        emits[np.arange(5), _OWN] = 1.0 - self.noise
        edge = np.full((1, 5, 5), -np.inf)
        edge[0, [0, 1, 3, 4], [1, 2, 4, 2]] = 0.0
        with np.errstate(divide="ignore"):
            node = np.log(emits).T[read]
            node[::3] += np.log([self.p_rib, 0.0, 0.0, 1.0 - self.p_rib, 0.0])
        return Potentials(node, edge, chains)

    def bayes_labels(self) -> list[list[str]]:
        """The most probable states of every step, given the whole word and the machine: nobody can do better."""
        best = ChainEngine().infer(self.potentials, Semiring.LOG).node.argmax(axis=1).reshape(-1, 3)
        return [[STATES[code] for code in word] for word in best.tolist()]


def make_rib_rob(
    n_words: int = 2000,
    *,
    p_rib: float = 0.5,
    noise: float = 3 / 32,
    random_state: int | np.random.Generator | None = 0,
) -> RibRob:
    """Make ``n_words`` words for label bias; each letter is, with probability ``noise``, one of the three others.

    >>> world = make_rib_rob(100)
    >>> world
    <RibRob: 100 words, p(rib) = 0.5, noise 0.09375>
    >>> sum(found == truth for found, truth in zip(world.bayes_labels(), world.labels)) > 85
    True
    """
    if n_words < 0:
        raise InputError(f"n_words must be ≥ 0, got {n_words}.")
    for name, value in (("p_rib", p_rib), ("noise", noise)):
        if not 0 <= value <= 1:
            raise InputError(f"{name} must be a probability between 0 and 1, got {value!r}.")
    rng = np.random.default_rng(random_state)
    states = _BRANCHES[(rng.random(n_words) >= p_rib).astype(np.int64)]
    read = _OWN[states]
    other = (read + rng.integers(1, 4, read.shape)) % 4
    read = np.where(rng.random(read.shape) < noise, other, read)
    letters = [[[LETTERS[code]] for code in word] for word in read.tolist()]
    labels = [[STATES[code] for code in word] for word in states.tolist()]
    return RibRob(letters, labels, float(p_rib), float(noise))


def five_states(*, against_chance: bool = False) -> Potentials:
    """The figure of the lecture as one chain of four steps, log-scores of the local probabilities.

    Paths begin in state 1 or 2. With ``against_chance`` every row is multiplied by the number of its ways out, which
    leaves the local probabilities as they are.

    >>> from crfield.inference.labellings import path_scores
    >>> scores = five_states()
    >>> [round(float(np.exp(path_scores(scores, np.array(p)))[0]), 3) for p in ([0] * 4, [1] * 4, [0, 1, 0, 1])]
    [0.09, 0.018, 0.06]
    """
    table = np.zeros((3, 5, 5))
    table[:, :2] = _FIGURE
    if against_chance:
        table *= (table > 0).sum(axis=2, keepdims=True)
    node = np.zeros((4, 5))
    node[0, 2:] = -np.inf
    with np.errstate(divide="ignore"):
        return Potentials(node, np.log(table), Chains.from_lengths([4]))
