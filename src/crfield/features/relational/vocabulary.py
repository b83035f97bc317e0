"""Who and what a specification may speak of: agents, teams, objects, axes, labels, channels.

Agents and objects are one numbered list, in the order of the recordings' second axis: objects behind agents. Domains
are named parts of it. ``agents`` (also called ``robots``) holds all agents, every team is a domain of its name, every
object too, ``objects`` holds all objects and ``all`` everything that moves; ``axes`` (also ``xy``, ``xyz``) the
coordinates. Labels and agents meet by name: where a label is called as an agent is, ``Y == a`` ties the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crfield.errors import InputError
from crfield.features.relational.functions import STANDARD, Functions


class Thing(NamedTuple):
    """What a variable stands for: an agent, an axis or a label, by number."""

    kind: str
    number: int


@dataclass(frozen=True)
class Vocabulary:
    """The names that can be used; see the module.

    >>> words = Vocabulary.of(labels=["pass", "keep"], teams={"us": ["a", "b"], "them": ["c"]}, objects=["ball"])
    >>> words.agents, words.domains["all"][-1], sorted(words.domains)[:4]
    (('a', 'b', 'c', 'ball'), Thing(kind='agent', number=3), ['agents', 'all', 'axes', 'ball'])
    """

    labels: tuple[str, ...]
    agents: tuple[str, ...]
    axes: tuple[str, ...]
    domains: Mapping[str, tuple[Thing, ...]]
    channels: frozenset[str] = frozenset()
    agent_channels: frozenset[str] = frozenset()
    functions: Functions = field(default=STANDARD, repr=False)

    @classmethod
    def of(
        cls,
        *,
        labels: int | Sequence[Any],
        agents: int | Sequence[Any] = 0,
        teams: Mapping[str, Sequence[Any]] | None = None,
        objects: Sequence[Any] = (),
        axes: str | Sequence[str] = "xy",
        channels: Iterable[str] = (),
        agent_channels: Iterable[str] = (),
        functions: Functions = STANDARD,
    ) -> Vocabulary:
        """Numbers stand for names '0', '1', …; without ``agents`` they are the members of the teams."""
        teams = {name: _names(members, f"team {name}") for name, members in (teams or {}).items()}
        members = [name for team in teams.values() for name in team]
        people = _names(agents, "agents") or tuple(dict.fromkeys(members))
        things = _names(objects, "objects")
        everyone = (*people, *things)
        if len(set(everyone)) < len(everyone):
            raise InputError(f"agents and objects must have different names, got {list(everyone)}.")
        strangers = sorted(set(members) - set(people))
        if strangers:
            raise InputError(f"teams hold {strangers}, who are not among the agents {list(people)}.")
        number = {name: Thing("agent", k) for k, name in enumerate(everyone)}
        coordinates = tuple(Thing("axis", k) for k in range(len(axes)))
        domains = {
            "agents": tuple(number[name] for name in people),
            "robots": tuple(number[name] for name in people),
            "objects": tuple(number[name] for name in things),
            "all": tuple(number.values()),
            "axes": coordinates,
            "".join(axes): coordinates,
        }
        for name, group in [*((thing, (thing,)) for thing in things), *teams.items()]:
            if not name.isidentifier() or name in domains:
                raise InputError(f"{name!r} cannot be the name of a domain: it is taken, or not one word.")
            domains[name] = tuple(number[member] for member in group)
        known = _names(labels, "labels")
        if not known:
            raise InputError("labels must hold at least one label.")
        return cls(
            known,
            everyone,
            tuple(axes),
            domains,
            frozenset(channels),
            frozenset(agent_channels),
            functions,
        )

    @property
    def n_labels(self) -> int:
        """L."""
        return len(self.labels)

    def word(self, thing: Thing) -> str:
        """The name of a thing."""
        return {"agent": self.agents, "axis": self.axes, "label": self.labels}[thing.kind][thing.number]


def _names(given: int | Sequence[Any], what: str) -> tuple[str, ...]:
    if isinstance(given, int) and not isinstance(given, bool):
        if given < 0:
            raise InputError(f"{what} must be ≥ 0, got {given}.")
        return tuple(str(k) for k in range(given))
    if isinstance(given, str | bool) or not hasattr(given, "__iter__"):
        raise InputError(f"{what} must be a number or a list of names, got {given!r}.")
    names = tuple(str(name) for name in given)
    if len(set(names)) < len(names):
        raise InputError(f"{what} must be different, got {list(names)}.")
    return names
