"""The features of a relational stream in Python: classes behind the module of the model.

The module of the model (`crfield.estimators.export.python_code`) reads columns. It is kept whole; a subclass of its
``Stream`` takes positions instead.
"""

from __future__ import annotations

from crfield.estimators.export.features.language import Python
from crfield.estimators.export.features.relational import RelationalStep, relational_step
from crfield.features.relational.stream import FeatureStream

_HEAD = """\
# Positions in, label out: the class Stream at the end of this file takes positions and computes the COLUMNS of the
# model itself; the Stream before it is the model of columns.
"""

_CODE = '''

from math import atan2, cos, pow, sin, sqrt


class Past:
    """The value lag steps ago, or the first one."""

    def __init__(self, lag):
        self.lag = lag
        self.begin()

    def begin(self):
        self.ring, self.at = [], 0
        return 0.0

    def push(self, value):
        if len(self.ring) <= self.lag:
            self.ring.append(value)
            return self.ring[0]
        self.ring[self.at] = value
        self.at = (self.at + 1) % len(self.ring)
        return self.ring[self.at]


class Window:
    """The max, min or mean of the last width values."""

    def __init__(self, kind, width):
        self.kind, self.width = kind, width
        self.begin()

    def begin(self):
        self.block, self.count, self.later, self.ahead = [0.0] * self.width, 0, False, 0.0
        return 0.0

    def join(self, a, b):
        if self.kind == "mean":
            return a + b
        return (b if a < b else a) if self.kind == "max" else (b if b < a else a)

    def push(self, value):
        if self.count == self.width:
            for k in range(self.width - 2, -1, -1):
                self.block[k] = self.join(self.block[k + 1], self.block[k])
            self.count, self.later = 0, True
        self.ahead = self.join(self.ahead, value) if self.count else value
        self.block[self.count] = value
        self.count += 1
        found = self.ahead
        if self.later and self.count < self.width:
            found = self.join(self.block[self.count], found)
        return found / (self.width if self.later else self.count) if self.kind == "mean" else found


class Features:
    """The columns of a step from positions (@agents@, @axes@)."""

    def __init__(self):
        self.begin()

    def begin(self):
@begin@

    def push(self, positions, present=None@more@):
        for a in range(@agents@):
            if (present is None or present[a]) and not all(isfinite(v) for v in positions[a][:@axes@]):
                raise ValueError("the position of agent %d is not finite" % a)
@body@


class Stream(Stream):
    """Positions in, label out: push(positions, present=None@more@), else as above.

    present has a flag for each agent, None where all are there.
    """

    def begin(self):
        super().begin()
        self.features = Features()

    def push(self, positions, present=None@more@):
        return super().push(self.features.push(positions, present@passed@))
'''


def relational_module(model: str, stream: FeatureStream) -> str:
    """The text of the module; ``model`` is that of the model alone."""
    step = relational_step(stream, Python)
    words = stream.catalogue.words
    names = [
        *(["velocities"] if step.given_velocities else []),
        *(["channels"] if step.channels else []),
        *(["agent_channels"] if step.agent_channels else []),
    ]
    filled = {
        "agents": str(len(words.agents)),
        "axes": str(len(words.axes)),
        "more": "".join(f", {name}=None" for name in names),
        "passed": "".join(f", {name}" for name in names),
        "begin": "\n".join(f"        {line}" for line in _begin(step)),
        "body": "\n".join(f"        {line}" for line in _body(step)),
    }
    text = _CODE
    for key, part in filled.items():
        text = text.replace(f"@{key}@", part)
    return _HEAD + model + text


def _begin(step: RelationalStep) -> list[str]:
    lines = []
    for name, memory in step.memories.items():
        made = f"Past({memory.size - 1})" if memory.kind == "lag" else f"Window({memory.kind!r}, {memory.size})"
        lines.append(f"self.{name} = {made}")
    lines += [f"self.l{agent}_{axis} = 0.0" for agent, axis in step.velocities]
    lines += [f"self.s{agent} = False" for agent in sorted({agent for agent, _ in step.velocities})]
    return lines or ["pass"]


def _body(step: RelationalStep) -> list[str]:
    checked = {value for _, value in step.checks}
    lines, first = [], []
    for line in step.lines:
        told = f"{line.target} = {line.expression}"
        if line.target[0] == "h" or line.target in checked:
            first.append(told)
            if line.target in checked:
                first += [f"if not isfinite({line.target}):", '    raise ValueError("a channel is not finite")']
        else:
            lines.append(told)
    lines += [f"self.l{agent}_{axis} = p{agent}_{axis}" for agent, axis in step.velocities]
    lines += [f"self.s{agent} = h{agent}" for agent in sorted({agent for agent, _ in step.velocities})]
    return [*first, *lines, "return [" + ", ".join(step.columns) + "]"]
