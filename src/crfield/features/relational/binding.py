"""Templates meet the vocabulary: variables become agents, and equal sub-expressions one node.

A ground expression has no variables left. It lives in a `Graph` of nodes, numbered so that a node's inputs come
before it; the same operation on the same inputs is the same node, wherever it is written, so that a distance that
thirty templates speak of is computed once. Conditions (``where``, ``if``) speak of agents, axes and
labels, never of data, and are settled here. All of it happens before there are any data, and what is wrong with a
specification is found here, with its place.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from crfield.features.relational.functions import AGGREGATE_NAMES, AGGREGATES, SCALAR, VECTOR
from crfield.features.relational.syntax import Aggregate, Call, Expression, Loop, Name, Number, Text
from crfield.features.relational.tokens import Place, fault
from crfield.features.relational.vocabulary import Thing, Vocabulary

Bound = dict[str, Thing]
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Node:
    """One operation on earlier nodes. ``fixed`` are its constants: an agent, a lag, a number, which form.

    A gathering also knows which agents it runs over, for each of its values, and which ones all of them name besides:
    who is absent of the former is left out, and without the latter it has no value.
    """

    operation: str
    inputs: tuple[int, ...]
    fixed: tuple[Any, ...]
    gives: str


@dataclass
class Graph:
    """Nodes in an order in which they can be computed."""

    nodes: list[Node] = field(default_factory=list)
    _number: dict[Node, int] = field(default_factory=dict)

    def add(
        self, operation: str, inputs: tuple[int, ...] = (), fixed: tuple[Any, ...] = (), gives: str = SCALAR
    ) -> int:
        """The number of this node, new or known."""
        node = Node(operation, inputs, fixed, gives)
        if node not in self._number:
            self._number[node] = len(self.nodes)
            self.nodes.append(node)
        return self._number[node]

    def named(self, number: int) -> frozenset[int]:
        """Agents without whom a node has no value, whoever else is there."""
        node = self.nodes[number]
        if node.operation in ("pos", "vel"):
            return frozenset(node.fixed)
        if node.operation == "channel":
            return frozenset(agent for agent in node.fixed[1:] if agent >= 0)
        if node.operation == "gather":
            return frozenset(node.fixed[2])
        return frozenset().union(*map(self.named, node.inputs))

    def gather(self, name: str, inputs: tuple[int, ...], who: tuple[tuple[int, ...], ...]) -> int:
        """The number of an aggregate over values, or pairs of them, each about the agents ``who`` it runs over."""
        each = len(inputs) // len(who)
        besides = [
            frozenset().union(*map(self.named, inputs[k * each : (k + 1) * each])) - set(own)
            for k, own in enumerate(who)
        ]
        return self.add("gather", inputs, (name, who, tuple(sorted(frozenset.intersection(*besides)))))


def bindings(loops: tuple[Loop, ...], words: Vocabulary) -> Iterator[Bound]:
    """All ways in which variables can run, the last one fastest."""
    for loop in loops:
        if loop.domain not in words.domains:
            raise fault(f"there is no domain {loop.domain!r}; there are {_listing(words.domains)}.", loop.place)
        if loop.variable in words.domains or loop.variable in words.channels:
            raise fault(f"{loop.variable!r} is the name of a domain or a channel; choose another name.", loop.place)
    for things in product(*(words.domains[loop.domain] for loop in loops)):
        yield {loop.variable: thing for loop, thing in zip(loops, things, strict=True)}


def mentions(expression: Expression | None, name: str) -> bool:
    """Whether the name occurs."""
    if isinstance(expression, Name):
        return expression.value == name
    if isinstance(expression, Call | Aggregate):
        return any(mentions(argument, name) for argument in expression.arguments)
    return False


def holds(condition: Expression | None, bound: Bound, words: Vocabulary) -> bool:
    """Whether a condition on agents, axes and labels is true."""
    if condition is None:
        return True
    if not isinstance(condition, Call):
        raise fault("expected a comparison such as a != b, a in us or Y == a.", condition.place)
    sign, arguments = condition.function, condition.arguments
    if sign in ("and", "or"):
        # both sides are looked at, so that a fault on the right is found whatever the left says
        left, right = (holds(argument, bound, words) for argument in arguments)
        return (left and right) if sign == "and" else (left or right)
    if sign == "not":
        return not holds(arguments[0], bound, words)
    if sign == "in":
        if not isinstance(arguments[1], Name) or arguments[1].value not in words.domains:
            raise fault(f"expected a domain, one of {_listing(words.domains)}.", arguments[1].place)
        thing = _thing(arguments[0], bound, words)
        names = [words.word(member) for member in words.domains[arguments[1].value]]
        return (thing if isinstance(thing, str) else words.word(thing)) in names
    if sign not in _ORDER:
        raise fault(
            f"{sign!r} cannot stand in a condition: it is about agents and labels, not data.", condition.place
        )
    left_thing, right_thing = (_thing(argument, bound, words) for argument in arguments)
    if isinstance(left_thing, Thing) and isinstance(right_thing, Thing) and left_thing.kind == right_thing.kind:
        return _ORDER[sign](left_thing.number, right_thing.number)
    if sign not in ("==", "!="):
        raise fault("only two agents, two axes or two labels have an order; use == or !=.", condition.place)
    one, other = (thing if isinstance(thing, str) else words.word(thing) for thing in (left_thing, right_thing))
    return _ORDER[sign](one, other)


def _thing(expression: Expression, bound: Bound, words: Vocabulary) -> Thing | str:
    if isinstance(expression, Name):
        if expression.value in bound:
            return bound[expression.value]
        if expression.value in ("Y", "Yp"):
            link = "a condition of a 'trans' template" if expression.value == "Yp" else "'where'"
            raise fault(f"{expression.value} can be used in {link} only.", expression.place)
        raise fault(f"{expression.value!r} is no variable here; there are {_listing(bound)}.", expression.place)
    known = {*words.agents, *words.labels, *words.axes}
    if isinstance(expression, Text | Number):
        value = expression.value if isinstance(expression, Text) else f"{expression.value:g}"
        if value not in known:
            raise fault(f"no agent, axis or label is called {value!r}.", expression.place)
        return value
    raise fault("expected a variable, Y, Yp or a name in quotes.", expression.place)


class Grounder:
    """Puts expressions into a graph, one binding at a time."""

    def __init__(self, words: Vocabulary) -> None:
        self.words, self.graph = words, Graph()

    def scalar(self, expression: Expression, bound: Bound) -> int:
        """The node of an expression that must be a number at every step."""
        return self._one(expression, bound, SCALAR)

    def _one(self, expression: Expression, bound: Bound, gives: str) -> int:
        node = self._node(expression, bound)
        if self.graph.nodes[node].gives != gives:
            hint = " Take comp(…, c), norm(…) or dot(…, …) of it." if gives == SCALAR else ""
            raise fault(f"expected a {gives}, got a {self.graph.nodes[node].gives}.{hint}", expression.place)
        return node

    def _node(self, expression: Expression, bound: Bound) -> int:
        if isinstance(expression, Number):
            return self.graph.add("const", fixed=(expression.value,))
        if isinstance(expression, Name):
            return self._name(expression, bound)
        if isinstance(expression, Text):
            raise fault("a name in quotes can stand in conditions only.", expression.place)
        if isinstance(expression, Aggregate):
            return self._aggregate(expression, bound)
        special = getattr(self, f"_call_{expression.function}", None)
        if special is not None:
            return special(expression, bound)
        if expression.function in AGGREGATE_NAMES:
            return self._aggregate(
                Aggregate(expression.function, expression.arguments, (), None, expression.place), bound
            )
        return self._plain(expression, bound)

    def _name(self, expression: Name, bound: Bound) -> int:
        if expression.value in self.words.channels:
            return self.graph.add("channel", fixed=(expression.value, -1))
        if expression.value in bound:
            kind = bound[expression.value].kind
            raise fault(
                f"{expression.value} is an {kind}, not a number; write speed({expression.value}) or the like.",
                expression.place,
            )
        known = _listing([*bound, *self.words.channels])
        raise fault(f"there is no variable or channel {expression.value!r}; there are {known}.", expression.place)

    def _plain(self, expression: Call, bound: Bound) -> int:
        name = expression.function
        if name in self.words.agent_channels:
            (agent,) = self._agents(expression, bound, 1)
            return self.graph.add("channel", fixed=(name, agent))
        if name == "tuple":
            raise fault("a list in brackets can stand in select_min and select_max only.", expression.place)
        if name not in self.words.functions:
            raise fault(f"there is no function {name!r}{_nearest(name, self.words)}.", expression.place)
        if name in ("angle", "cross") and len(self.words.axes) < 2:
            raise fault(f"{name} needs a plane, and there is one axis only.", expression.place)
        inputs = tuple(self._node(argument, bound) for argument in expression.arguments)
        kinds = tuple(self.graph.nodes[node].gives for node in inputs)
        for k, form in enumerate(self.words.functions[name]):
            if form.takes == kinds:
                return self.graph.add("apply", inputs, (name, k), form.gives)
        forms = " or ".join(f"({', '.join(form.takes)})" for form in self.words.functions[name])
        raise fault(f"{name} takes {forms}, got ({', '.join(kinds)}).", expression.place)

    def _aggregate(self, expression: Aggregate, bound: Bound) -> int:
        name = AGGREGATE_NAMES.get(expression.function)
        if name is None:
            raise fault(f"{expression.function!r} cannot gather; {_listing(AGGREGATE_NAMES)} can.", expression.place)
        each = 2 if name.startswith("select") else 1
        if expression.loops:
            if len(expression.arguments) != each:
                raise fault(f"{expression.function} gathers {each} at a time.", expression.place)
            ways = [{**bound, **more} for more in bindings(expression.loops, self.words)]
            ways = [way for way in ways if holds(expression.condition, way, self.words)]
            inputs = [self._one(part, way, SCALAR) for way in ways for part in expression.arguments]
            own = [loop.variable for loop in expression.loops]
            who = tuple(tuple(way[v].number for v in own if way[v].kind == "agent") for way in ways)
        else:
            if not expression.arguments or name == "count" or each == 2:
                raise fault(f"write {expression.function}(… for variable in domain).", expression.place)
            inputs = [self._one(part, bound, SCALAR) for part in expression.arguments]
            who = ((),) * len(inputs)
        if not inputs:
            empty = AGGREGATES[name][2]
            if empty is None:
                here = ", ".join(f"{key} = {self.words.word(thing)}" for key, thing in bound.items())
                raise fault(f"nothing is left to take the {name} of where {here or 'this stands'}.", expression.place)
            return self.graph.add("const", fixed=(empty,))
        return self.graph.gather(name, tuple(inputs), who)

    def _agents(self, call: Call, bound: Bound, count: int, *, also: int = 0) -> list[int]:
        if len(call.arguments) != count + also:
            raise fault(f"{call.function} takes {count + also} arguments, got {len(call.arguments)}.", call.place)
        found = []
        for argument in call.arguments[:count]:
            thing: Thing | None = None
            if isinstance(argument, Name):
                thing = bound.get(argument.value)
                alone = self.words.domains.get(argument.value, ())
                if thing is None and len(alone) == 1:
                    thing = alone[0]
            elif isinstance(argument, Text) and argument.value in self.words.agents:
                thing = Thing("agent", self.words.agents.index(argument.value))
            if thing is None or thing.kind != "agent":
                raise fault(
                    f"{call.function} takes an agent; the variables here are {_listing(bound)}.", argument.place
                )
            found.append(thing.number)
        return found

    def _position(self, agent: int) -> int:
        return self.graph.add("pos", fixed=(agent,), gives=VECTOR)

    def _velocity(self, agent: int) -> int:
        return self.graph.add("vel", fixed=(agent,), gives=VECTOR)

    def _apply(self, name: str, *inputs: int) -> int:
        kinds = tuple(self.graph.nodes[node].gives for node in inputs)
        forms = self.words.functions[name]
        k = [form.takes for form in forms].index(kinds)
        return self.graph.add("apply", inputs, (name, k), forms[k].gives)

    def _call_pos(self, call: Call, bound: Bound) -> int:
        return self._position(*self._agents(call, bound, 1))

    def _call_vel(self, call: Call, bound: Bound) -> int:
        return self._velocity(*self._agents(call, bound, 1))

    def _call_acc(self, call: Call, bound: Bound) -> int:
        return self.graph.add("rate", (self._velocity(*self._agents(call, bound, 1)),), gives=VECTOR)

    def _call_speed(self, call: Call, bound: Bound) -> int:
        return self._apply("norm", self._velocity(*self._agents(call, bound, 1)))

    def _call_rel(self, call: Call, bound: Bound) -> int:
        a, b = self._agents(call, bound, 2)
        return self._apply("-", self._position(b), self._position(a))

    def _call_relvel(self, call: Call, bound: Bound) -> int:
        a, b = self._agents(call, bound, 2)
        return self._apply("-", self._velocity(b), self._velocity(a))

    def _call_dist(self, call: Call, bound: Bound) -> int:
        return self._distance(*self._agents(call, bound, 2))

    def _distance(self, one: int, other: int) -> int:
        # ordered, so that dist(a, b) and dist(b, a) are one node
        a, b = min(one, other), max(one, other)
        return self._apply("norm", self._apply("-", self._position(b), self._position(a)))

    def _call_closest(self, call: Call, bound: Bound) -> int:
        (agent,) = self._agents(call, bound, 1, also=1)
        domain = call.arguments[1]
        if not isinstance(domain, Name) or domain.value not in self.words.domains:
            raise fault(f"closest takes an agent and a domain, one of {_listing(self.words.domains)}.", domain.place)
        others = [thing.number for thing in self.words.domains[domain.value] if thing != Thing("agent", agent)]
        if not others or self.words.domains[domain.value][0].kind != "agent":
            raise fault("there is no other agent in this domain.", domain.place)
        distances = tuple(self._distance(agent, other) for other in others)
        return self.graph.gather("min", distances, tuple((other,) for other in others))

    def _call_present(self, call: Call, bound: Bound) -> int:
        if "present" in self.words.agent_channels or "present" in self.words.functions:
            return self._plain(call, bound)  # a user's own word
        return self.graph.add("present", fixed=(*self._agents(call, bound, 1),))

    def _call_comp(self, call: Call, bound: Bound) -> int:
        if len(call.arguments) != 2:
            raise fault("comp takes a vector and an axis.", call.place)
        axis = call.arguments[1]
        thing = bound.get(axis.value) if isinstance(axis, Name) else None
        if thing is None and isinstance(axis, Name | Text) and axis.value in self.words.axes:
            thing = Thing("axis", self.words.axes.index(axis.value))
        if thing is None or thing.kind != "axis":
            raise fault(f"expected an axis, {_listing(self.words.axes)} or a variable in axes.", axis.place)
        inner = self._one(call.arguments[0], bound, VECTOR)
        return self.graph.add("comp", (inner,), (thing.number,))

    def _call_const(self, call: Call, bound: Bound) -> int:
        if len(call.arguments) != 1 or not isinstance(call.arguments[0], Number):
            raise fault("const takes a number.", call.place)
        return self.graph.add("const", fixed=(call.arguments[0].value,))

    def _steps(self, call: Call, *, least: int, otherwise: int | None = None) -> int:
        if len(call.arguments) == 1 and otherwise is not None:
            return otherwise
        if len(call.arguments) != 2:
            raise fault(f"{call.function} takes an expression and a number of steps.", call.place)
        steps = call.arguments[1]
        if not isinstance(steps, Number) or steps.value != int(steps.value) or not least <= steps.value <= 10**7:
            raise fault(f"expected an integer ≥ {least}, a number of steps.", steps.place)
        return int(steps.value)

    def _call_lag(self, call: Call, bound: Bound) -> int:
        steps = self._steps(call, least=0)
        return self._lagged(self._node(call.arguments[0], bound), steps)

    def _lagged(self, inner: int, steps: int) -> int:
        return self.graph.add("lag", (inner,), (steps,), self.graph.nodes[inner].gives) if steps else inner

    def _call_delta(self, call: Call, bound: Bound) -> int:
        steps = self._steps(call, least=1, otherwise=1) if call.arguments else self._steps(call, least=1)
        inner = self._node(call.arguments[0], bound)
        return self._apply("-", inner, self._lagged(inner, steps))

    def _past(self, kind: str, call: Call, bound: Bound) -> int:
        width = self._steps(call, least=1)
        return self.graph.add("slide", (self._one(call.arguments[0], bound, SCALAR),), (kind, width))

    def _call_past_mean(self, call: Call, bound: Bound) -> int:
        return self._past("mean", call, bound)

    def _call_past_min(self, call: Call, bound: Bound) -> int:
        return self._past("min", call, bound)

    def _call_past_max(self, call: Call, bound: Bound) -> int:
        return self._past("max", call, bound)


def _listing(names: Any) -> str:
    shown = [str(name) for name in names]
    return ", ".join(shown[:12]) + (", …" if len(shown) > 12 else "") if shown else "none"


def _nearest(name: str, words: Vocabulary) -> str:
    from difflib import get_close_matches

    own = [key.removeprefix("_call_") for key in vars(Grounder) if key.startswith("_call_")]
    known = [*words.functions.names, *own, *AGGREGATE_NAMES, *words.agent_channels]
    near = get_close_matches(name, [word for word in known if word.isidentifier()], n=2)
    return f"; did you mean {' or '.join(near)}?" if near else f"; there are {_listing(sorted(own))}"


__all__ = ["Bound", "Graph", "Grounder", "Node", "Place", "bindings", "holds", "mentions"]
