"""Measures of one window in C, each with the additions of `crfield.features.sensors.signals` in their order.

NumPy adds the numbers of a row in pairs: below 8 one after the other, up to 128 in eight lanes, above that in halves
(`NAME_sum`). A measure takes the window ``w`` (for correlations ``v`` too), its mean, and ``p``, room for products.
"""

from __future__ import annotations

from collections.abc import Callable

from crfield.features.sensors.signals import TINY
from crfield.features.sensors.spectra import MOST, TOLERANCE

_SUM = """
/* The sum of n numbers, added in pairs as NumPy does. */
static inline double NAME_sum(const double *w, int n) {
  double lane[8], sum = 0.0;
  int i, half = n / 2 - n / 2 % 8;
  if (n > 128) return NAME_sum(w, half) + NAME_sum(w + half, n - half);
  if (n < 8) {
    for (i = 0; i < n; i++) sum += w[i];
    return sum;
  }
  for (i = 0; i < 8; i++) lane[i] = w[i];
  for (i = 8; i < n - n % 8; i++) lane[i % 8] += w[i];
  sum = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  for (; i < n; i++) sum += w[i];
  return sum;
}
"""

_SQUARES = """
/* The mean square about the mean. */
static inline double NAME_squares(const double *w, int n, double mean, double *p) {
  for (int i = 0; i < n; i++) p[i] = (w[i] - mean) * (w[i] - mean);
  return NAME_sum(p, n) / n;
}
"""

_LEAST = """
static inline double NAME_least(const double *w, int n, double mean) {
  double found = w[0];
  for (int i = 1; i < n; i++) found = w[i] < found ? w[i] : found;
  return found - mean;
}
"""

_GREATEST = """
static inline double NAME_greatest(const double *w, int n, double mean) {
  double found = w[0];
  for (int i = 1; i < n; i++) found = w[i] > found ? w[i] : found;
  return found - mean;
}
"""

_HALF = """
/* The sample at 3n/4 less that at n/4, in order of size (heapsort: as long for any samples). */
static inline void NAME_sift(double *p, int from, int n) {
  while (2 * from + 1 < n) {
    int child = 2 * from + 1;
    double own = p[from];
    if (child + 1 < n && p[child + 1] > p[child]) child++;
    if (!(p[child] > own)) return;
    p[from] = p[child];
    p[child] = own;
    from = child;
  }
}

static inline double NAME_middle_half(const double *w, int n, double *p) {
  memcpy(p, w, (size_t)n * sizeof(double));
  for (int i = n / 2; i >= 0; i--) NAME_sift(p, i, n);
  for (int i = n - 1; i > 0; i--) {
    double most = p[0];
    p[0] = p[i];
    p[i] = most;
    NAME_sift(p, 0, i);
  }
  return p[3 * n / 4 < n - 1 ? 3 * n / 4 : n - 1] - p[n / 4];
}
"""

_ENERGY = """
static inline double NAME_energy(const double *w, int n, double *p) {
  for (int i = 0; i < n; i++) p[i] = w[i] * w[i];
  return NAME_sum(p, n) / n;
}
"""

_JERK = """
static inline double NAME_jerk(const double *w, int n, double *p) {
  for (int i = 1; i < n; i++) p[i - 1] = fabs(w[i] - w[i - 1]);
  return n < 2 ? 0.0 : NAME_sum(p, n - 1) / (n - 1);
}
"""

_CROSSINGS = """
static inline double NAME_crossings(const double *w, int n, double mean) {
  int count = 0;
  for (int i = 1; i < n; i++) count += (w[i] > mean) != (w[i - 1] > mean);
  return n < 2 ? 0.0 : (double)count / (n - 1);
}
"""

_AUTOCORRELATION = """
static inline double NAME_autocorrelation(const double *w, int n, double mean, int lag, double *p) {
  double own, shifted;
  if (lag >= n) return 0.0;
  for (int i = 0; i < n; i++) p[i] = (w[i] - mean) * (w[i] - mean);
  own = NAME_sum(p, n);
  for (int i = 0; i + lag < n; i++) p[i] = (w[i] - mean) * (w[i + lag] - mean);
  shifted = NAME_sum(p, n - lag);
  return own > @tiny@ ? shifted / own : 0.0;
}
"""

_CORRELATION = """
static inline double NAME_correlation(const double *w, const double *v, int n, double *p) {
  const double one = NAME_sum(w, n) / n, other = NAME_sum(v, n) / n;
  double first, second, size;
  for (int i = 0; i < n; i++) p[i] = (w[i] - one) * (w[i] - one);
  first = NAME_sum(p, n);
  for (int i = 0; i < n; i++) p[i] = (v[i] - other) * (v[i] - other);
  second = NAME_sum(p, n);
  for (int i = 0; i < n; i++) p[i] = (w[i] - one) * (v[i] - other);
  size = sqrt(first * second);
  return size > @tiny@ ? NAME_sum(p, n) / size : 0.0;
}
"""

_ENTROPY = """
/* log (1 + pairs that agree over two samples) - log (1 + over three), of at most @most@ means of neighbours. */
static inline double NAME_sample_entropy(const double *w, int n, double *p) {
  const int factor = (n + @most@ - 1) / @most@, m = n / factor;
  double part[@most@], mean, reach;
  int two = 0, three = 0;
  for (int i = 0; i < m; i++) part[i] = factor == 1 ? w[i] : NAME_sum(w + i * factor, factor) / factor;
  if (m < 4) return 0.0;
  mean = NAME_sum(part, m) / m;
  for (int i = 0; i < m; i++) p[i] = (part[i] - mean) * (part[i] - mean);
  reach = @tolerance@ * sqrt(NAME_sum(p, m) / m);
  if (!(reach > 0.0)) return 0.0;
  for (int i = 0; i < m - 2; i++)
    for (int j = 0; j < m - 2; j++)
      if (fabs(part[i] - part[j]) <= reach && fabs(part[i + 1] - part[j + 1]) <= reach) {
        two++;
        three += fabs(part[i + 2] - part[j + 2]) <= reach;
      }
  return log1p((double)(two - (m - 2))) - log1p((double)(three - (m - 2)));
}
"""

_CONTEXT = """
/* Mean and deviation of the measures of the last steps, width of them or as many as there are. */
static inline void NAME_context(const NAME_features *f, int width, double *out) {
  const long long first = f->steps < width - 1 ? 0 : f->steps - (width - 1);
  const double count = (double)(f->steps - first + 1);
  double *mean = out, *spread = out + NAME_BASE;
  for (int k = 0; k < NAME_BASE; k++) {
    mean[k] = spread[k] = 0.0;
    for (long long t = first; t <= f->steps; t++) mean[k] += f->base[(t % NAME_ROWS) * NAME_BASE + k];
    mean[k] /= count;
    for (long long t = first; t <= f->steps; t++) {
      const double away = f->base[(t % NAME_ROWS) * NAME_BASE + k] - mean[k];
      spread[k] += away * away;
    }
    spread[k] = sqrt(spread[k] / count);
  }
}
"""

# a call in C, and its operations, for a window of n samples and a lag
MEASURED: dict[str, Callable[[int, int], tuple[str, int]]] = {
    "mean": lambda n, lag: ("mean", 0),
    "deviation": lambda n, lag: (f"sqrt(NAME_squares(f->w, {n}, mean, f->p))", 4 * n + 2),
    "least": lambda n, lag: (f"NAME_least(f->w, {n}, mean)", 2 * n + 1),
    "greatest": lambda n, lag: (f"NAME_greatest(f->w, {n}, mean)", 2 * n + 1),
    "middle half": lambda n, lag: (f"NAME_middle_half(f->w, {n}, f->p)", 3 * n * n.bit_length() + 1),
    "energy": lambda n, lag: (f"NAME_energy(f->w, {n}, f->p)", 2 * n + 1),
    "log energy": lambda n, lag: (f"log(NAME_squares(f->w, {n}, mean, f->p) + {TINY!r})", 4 * n + 3),
    "jerk": lambda n, lag: (f"NAME_jerk(f->w, {n}, f->p)", 3 * n + 1),
    "log jerk": lambda n, lag: (f"log(NAME_jerk(f->w, {n}, f->p) + {TINY!r})", 3 * n + 3),
    "crossings": lambda n, lag: (f"NAME_crossings(f->w, {n}, mean)", 4 * n + 1),
    "sample entropy": lambda n, lag: (
        f"NAME_sample_entropy(f->w, {n}, f->p)",
        n + 4 * MOST + 9 * min(n, MOST) ** 2 + 8,
    ),
    "autocorrelation": lambda n, lag: (f"NAME_autocorrelation(f->w, {n}, mean, {lag}, f->p)", 8 * n + 2),
    "correlation": lambda n, lag: (f"NAME_correlation(f->w, f->v, {n}, f->p)", 14 * n + 6),
}
_TEXTS = {
    "deviation": _SQUARES,
    "log energy": _SQUARES,
    "least": _LEAST,
    "greatest": _GREATEST,
    "middle half": _HALF,
    "energy": _ENERGY,
    "jerk": _JERK,
    "log jerk": _JERK,
    "crossings": _CROSSINGS,
    "sample entropy": _ENTROPY,
    "autocorrelation": _AUTOCORRELATION,
    "correlation": _CORRELATION,
}


def helpers(names: set[str], *, contexts: bool) -> str:
    """The functions that some measures need, and that of contexts."""
    parts = [_SUM, *dict.fromkeys(text for name, text in _TEXTS.items() if name in names)]
    parts += [_CONTEXT] if contexts and names else []
    text = "".join(parts).replace("@tiny@", repr(TINY)).replace("@most@", str(MOST))
    return text.replace("@tolerance@", repr(TOLERANCE))
