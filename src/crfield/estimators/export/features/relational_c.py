"""The features of a relational stream in C.

A window keeps one block: while it fills from the left with new values, what is left of the old block lies to the
right of them, each value joined with all behind it, so that one array serves for both (van Herk 1992; the same
additions in the same order as `crfield.kernels.families.slide`).
"""

from __future__ import annotations

from crfield.estimators.export.features.header import FeatureCode, comment
from crfield.estimators.export.features.language import C, Memory
from crfield.estimators.export.features.relational import RelationalStep, relational_step
from crfield.features.relational.stream import FeatureStream

_PAST = """
/* The value lag steps ago, or the first one; at: how many there are, and the oldest. */
static inline double NAME_past(double *ring, int *at, int lag, double value) {
  if (at[0] <= lag) {
    ring[at[0]++] = value;
    return ring[0];
  }
  ring[at[1]] = value;
  at[1] = (at[1] + 1) % (lag + 1);
  return ring[at[1]];
}
"""

_WINDOW = """
/* The KIND of the last width values; at: values of this block, and whether there was one before. */
static inline double NAME_KIND(double *block, int *at, int width, double value) {
  double ahead;
  if (at[0] == width) {
    for (int k = width - 2; k >= 0; k--) block[k] = JOIN(block[k + 1], block[k]);
    at[0] = 0;
    at[1] = 1;
  }
  ahead = block[width] = at[0] ? JOIN(block[width], value) : value;
  block[at[0]++] = value;
  if (at[1] && at[0] < width) ahead = JOIN(block[at[0]], ahead);
  return ANSWER;
}
"""

_FORGET = """
static inline double NAME_forget(int *at) {
  at[0] = at[1] = 0;
  return 0.0;
}
"""

_JOINS = {"max": "a < b ? b : a", "min": "b < a ? b : a", "mean": "a + b"}


def relational_code(stream: FeatureStream) -> FeatureCode:
    """C for the columns of a stream."""
    step = relational_step(stream, C)
    words = stream.catalogue.words
    arguments = [("const double *", "positions"), ("const unsigned char *", "present")]
    about = [
        f"positions: ({len(words.agents)}, {len(words.axes)}) doubles, {', '.join(words.axes)} of agent after agent;",
        f"the agents are {', '.join(words.agents)}.",
        f"present: {len(words.agents)} flags, 0 for an agent that is absent, or NULL where all are present.",
    ]
    if step.given_velocities:
        arguments.append(("const double *", "velocities"))
        about.append("velocities: of the same form.")
    elif step.velocities:
        about.append(f"Velocities are changes of position times the rate, {stream.rate!r} steps a second.")
    for kind, names in (("channels", step.channels), ("agent_channels", step.agent_channels)):
        if names:
            arguments.append(("const double *", kind))
            form = "a double each" if kind == "channels" else f"{len(words.agents)} doubles each"
            about.append(f"{kind}: {form}, {', '.join(names)}.")
    helpers = "".join(_helpers(step))
    return FeatureCode(
        "positions",
        arguments,
        [comment(line) for line in about],
        f"#define NAME_AGENTS {len(words.agents)}\n#define NAME_AXES {len(words.axes)}\n",
        _fields(step),
        helpers,
        _body(step),
        step.operations,
    )


def _fields(step: RelationalStep) -> str:
    """Doubles first, so that nothing lies between them."""
    doubles = [f"{name}[{_doubles(memory)}]" for name, memory in step.memories.items()]
    doubles += [f"l{agent}_{axis}" for agent, axis in step.velocities]
    ints = [f"at_{name}[2]" for name in step.memories] + [f"s{agent}" for agent in _moving(step)]
    lines = [f"  double {name};\n" for name in doubles] + [f"  int {name};\n" for name in ints]
    return "".join(lines) or "  int nothing;\n"


def _doubles(memory: Memory) -> int:
    return memory.size + (memory.kind != "lag")


def _moving(step: RelationalStep) -> list[int]:
    return sorted({agent for agent, _ in step.velocities})


def _helpers(step: RelationalStep) -> list[str]:
    kinds = {memory.kind for memory in step.memories.values()}
    parts = [_FORGET] if any("NAME_forget(" in line.expression for line in step.lines) else []
    parts += [_PAST] if "lag" in kinds else []
    for kind, join in _JOINS.items():
        if kind in kinds:
            name = f"NAME_{kind}_of"
            parts.append(f"\nstatic inline double {name}(double a, double b) {{ return {join}; }}\n")
            answer = "ahead / (at[1] ? width : at[0])" if kind == "mean" else "ahead"
            parts.append(_WINDOW.replace("KIND", kind).replace("JOIN", name).replace("ANSWER", answer))
    return parts


def _body(step: RelationalStep) -> str:
    catalogue = step.stream.catalogue
    given = ["positions", *(["velocities"] if step.given_velocities else [])]
    lines = [
        "  for (int a = 0; a < NAME_AGENTS; a++)",
        "    for (int d = 0; d < NAME_AXES; d++)",
        "      if ((!present || present[a]) && ("
        + " || ".join(f"!isfinite({name}[a * NAME_AXES + d])" for name in given)
        + ")) return -2;",
    ]
    first = []
    checked = {value: there for there, value in step.checks}
    for line in step.lines:
        # what may still be refused comes before anything is remembered
        told = f"  const {'int' if line.truth else 'double'} {line.target} = {line.expression};"
        if line.target[0] == "h" or line.target in checked:
            first.append(told)
            if line.target in checked:
                first.append(f"  if (!isfinite({line.target})) return -2;")
        else:
            lines.append(told)
    lines[3:3] = first
    for agent, axis in step.velocities:
        lines.append(f"  f->l{agent}_{axis} = p{agent}_{axis};")
    lines += [f"  f->s{agent} = h{agent};" for agent in _moving(step)]
    for k, (column, value) in enumerate(zip(step.stream.columns.tolist(), step.columns, strict=True)):
        lines.append(f"  x[{k}] = {value}; /* {comment(catalogue.column_name(column))} */")
    lines += ["  (void)f;", "  (void)x;", "  (void)present;"]
    return "\n".join(lines)
