"""
Why this label?
===============

The score of a labelling is a sum of weights, one for each feature and each transition. So the
question "why is this word a comment and not a name?" has an exact answer: take the best
labelling, take the best one with another label at that word, and look at where their sums
differ.

``model.explain`` does this, and says as well which features would have to go for the answer to
change.
"""

import matplotlib.pyplot as plt

from crfield import ChainCRF, make_phrases, phrase_features

# %%
# Phrases from a made cookbook, each word labelled as quantity, unit, name or comment.

phrases = make_phrases(1500, random_state=0)
X = [phrase_features(tokens) for tokens in phrases.tokens]
model = ChainCRF(l2=1.0).fit(X, phrases.labels)

words = "2 cups freshly chopped onions".split()
x = phrase_features(words)
print(*zip(words, model.predict([x])[0].tolist()), sep="\n")

# %%
# Why is "chopped" a comment, and not a name?
# -------------------------------------------

told = model.explain(x, 3, against="B-NAME")
print(told)

# %%
# Each bar is one term of the difference between the two labellings; together they are the
# margin. The predicted labelling is e to the power of the margin times as probable as the
# runner-up.

strongest = told.top(8)[::-1]
names = [f"{part.name}  (word {part.step + 1})" for part in strongest]
amounts = [part.amount for part in strongest]
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
axes.barh(names, amounts, color=["#33658a" if amount > 0 else "#f26419" for amount in amounts])
axes.axvline(0, color="black", linewidth=0.8)
axes.set_xlabel(f"for {told.label} (right), for {told.other} (left)")
axes.set_title(f"“{words[3]}”: margin {told.margin:.2f}", fontsize="medium")
axes.spines[["top", "right"]].set_visible(False)
plt.show()
