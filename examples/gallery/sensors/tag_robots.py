"""
Robots that play tag: who seeks?
================================

Three robots drive about; one of them is the seeker and drives at whoever is nearest. Who it is
cannot be seen in any single frame. Over time it shows: the seeker moves *towards* somebody, and
whoever was tagged stands still for a while.

``tag_columns`` computes such columns from the positions, and a chain CRF turns them into the
probability that each robot is the seeker.
"""

import matplotlib.pyplot as plt
import numpy as np

from crfield import ChainCRF, make_tag, tag_columns

# %%
# Two games
# ---------

train = make_tag(4.0, scheme="unconstrained", random_state=1)
game = make_tag(1.0, scheme="unconstrained", random_state=2)
print(train)

# %%
# The columns ask how far apart two robots are and whether one drives at the other.

seen, unseen = (
    tag_columns(one.positions, "distance & chasing (N)", powers=(1, 2)) for one in (train, game)
)
on_changes = np.flatnonzero(
    seen.link == 1
).tolist()  # columns about changes: two robots that meet
model = ChainCRF(
    standardize=True, transition_features=on_changes, transition_pairs="all", tol=1e-3
)
chances = model.fit([seen.values], [train.labels]).predict_proba([unseen.values])[0]
print(f"frames right: {np.mean(chances.argmax(axis=1) == game.labels):.3f}")

# %%
# Left: five seconds of the game, with a dot where each robot is at the end. Right: who seeks,
# by the truth (the band below) and by the model (the curves).

COLOURS = ["#33658a", "#f26419", "#3a7d44"]
figure, (left, right) = plt.subplots(
    1, 2, figsize=(7, 3.4), width_ratios=[2, 3], layout="constrained"
)
start = int(np.flatnonzero(np.diff(game.labels))[2]) - 250
for robot, colour in enumerate(COLOURS):
    path = game.positions[start : start + 300, robot] / 1000
    left.plot(path[:, 0], path[:, 1], color=colour)
    left.plot(*path[-1], "o", color=colour, markersize=9)
left.set_aspect("equal")
left.set_xlabel("metres")
seconds = np.arange(len(game.labels)) / game.rate
for robot, colour in enumerate(COLOURS):
    right.plot(seconds, chances[:, robot], color=colour, linewidth=1.2)
    right.fill_between(seconds, -0.12, -0.04, where=game.labels == robot, color=colour)
right.axvspan(start / game.rate, (start + 300) / game.rate, color="#eeeeee", zorder=0)
right.set_xlabel("seconds")
right.set_ylabel("probability of being the seeker")
plt.show()
