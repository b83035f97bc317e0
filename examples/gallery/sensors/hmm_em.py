"""
States that nobody labelled: a hidden Markov model by EM
========================================================

A recording without any labels, and the guess that its source is in one of three states, each of
which lasts and has its own typical values. ``HMM(training="em")`` finds them: it guesses the
states from the densities, the densities from the states, and so on, and the likelihood rises at
each turn (Baum & Welch).
"""

import matplotlib.pyplot as plt
import numpy as np

from crfield import HMM

# %%
# Two sensors, three states
# -------------------------

rng = np.random.default_rng(4)
MEANS = np.array([[0.0, 0.0], [3.0, 1.0], [1.0, 3.5]])
hidden = np.zeros(900, int)
for t in range(1, 900):
    hidden[t] = hidden[t - 1] if rng.random() < 0.97 else rng.integers(3)
x = MEANS[hidden] + rng.normal(size=(900, 2)) @ np.array([[0.9, 0.3], [0.0, 0.7]])

# %%
# EM, without a single label
# --------------------------

model = HMM("full", training="em", n_states=3, random_state=0).fit([x])
found = model.predict([x])[0]
names = {state: int(np.bincount(hidden[found == state]).argmax()) for state in np.unique(found)}
agreement = np.mean([names[state] for state in found] == hidden)
print(f"after {model.n_iter_} turns, agreement with the hidden truth: {agreement:.3f}")
print("probability of staying:", model.transition_probabilities_.diagonal().round(2))

# %%
COLOURS = np.array(["#33658a", "#f26419", "#3a7d44"])
figure, (left, right) = plt.subplots(
    1, 2, figsize=(7, 3.3), width_ratios=[2, 3], layout="constrained"
)
left.scatter(*x.T, s=5, color=COLOURS[[names[s] for s in found]], alpha=0.6)
left.plot(*np.array(model.emissions_.mean).T, "k+", markersize=14, markeredgewidth=2)
left.set_xlabel("first sensor")
left.set_ylabel("second sensor")
for row, states in enumerate((hidden, [names[s] for s in found])):
    right.bar(range(900), 0.8, 1.0, bottom=row, color=COLOURS[list(states)], align="edge")
right.set_yticks([0.4, 1.4], ["hidden\ntruth", "found"])
right.invert_yaxis()
right.set_xlabel("step")
plt.show()
