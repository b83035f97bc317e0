"""
Numbers instead of labels
=========================

Sometimes the answer at each step is a number: a temperature, a heart rate, a price.
``ContinuousCRF`` joins a linear regression with the wish that neighbouring answers are close.
The result is a joint normal distribution, so every answer comes with an exact deviation.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge

from crfield import ContinuousCRF, make_smooth_series

# %%
made = make_smooth_series(40, length=80, association=0.4, interaction=4.0, random_state=1)
X, y = made.features, made.labels
model = ContinuousCRF().fit(X[:30], y[:30])
alone = Ridge().fit(np.concatenate(X[:30]), np.concatenate(y[:30]))

# %%
# How far off are they on series that were not seen?

mean, deviation = model.predict(X[30:]), model.predict_std(X[30:])
error = np.sqrt(np.mean(np.square(np.concatenate(mean) - np.concatenate(y[30:]))))
apart = np.sqrt(
    np.mean(np.square(alone.predict(np.concatenate(X[30:])) - np.concatenate(y[30:])))
)
print(f"root mean square error: {error:.2f}, step by step {apart:.2f}")

# %%
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
steps = np.arange(len(y[30]))
axes.plot(steps, alone.predict(X[30]), color="#bbbbbb", label="regression, step by step")
axes.fill_between(
    steps, mean[0] - 2 * deviation[0], mean[0] + 2 * deviation[0], color="#33658a", alpha=0.2
)
axes.plot(steps, mean[0], color="#33658a", label="ContinuousCRF, ± 2 deviations")
axes.plot(steps, y[30], color="black", linewidth=1, label="truth")
axes.set_xlabel("step")
axes.set_ylabel("value")
axes.legend(fontsize=9)
plt.show()
