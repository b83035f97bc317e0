"""From text to templates, by recursive descent.

    template  = NAME ("state" | "trans") ":" expression { "|" clause }
    clause    = "for" loops | "where" condition | "test" signs grid | "win" kind whole { "," whole }
              | "lag" whole { "," whole } | "pow" number { "," number }
    loops     = NAME "in" NAME { "," NAME "in" NAME }
    signs     = sign { "," sign }                           sign  = "<" | "<=" | ">" | ">="
    grid      = step { "," step }                           step  = number [ ":" number ":" number ]
    expression = both { ("or" | "|") both }                 "|" only within brackets: outside it ends the expression
    both      = turned { ("and" | "&") turned }
    turned    = ("not" | "~") turned | compared
    compared  = sum [ ("<" | "<=" | ">" | ">=" | "==" | "!=" | "in" | "not" "in") sum ]
    sum       = product { ("+" | "-") product }
    product   = signed { ("*" | "/") signed }
    signed    = "-" signed | value
    value     = NUMBER | TEXT | NAME | NAME "(" [ arguments ] ")" | "(" expression { "," expression } ")"
    arguments = expression { "," expression } [ "for" loops [ "if" expression ] ]

A grid ``a:b:s`` runs from a to b, both included, in steps of s. Nesting is limited, so that no text can exhaust the
stack.
"""

from __future__ import annotations

import math

from crfield.features.relational.syntax import (
    TESTS,
    WINDOWS,
    Aggregate,
    Call,
    Expression,
    Loop,
    Name,
    Number,
    Template,
    Text,
)
from crfield.features.relational.tokens import Token, fault, tokenize

CLAUSES = ("for", "where", "test", "win", "lag", "pow")
RESERVED = frozenset({"for", "in", "if", "and", "or", "not", "Y", "Yp"})
DEEPEST = 40
TALLEST = 120
LONGEST = 2_000
LONGEST_GRID = 30_000
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=", "in")


def parse(text: str) -> tuple[Template, ...]:
    """All templates of a text, their names distinct.

    >>> (template,) = parse("near trans : dist(a,b) | for a in us, b in them | test < 100:300:100 | lag 0,5")
    >>> template.grid, template.lags, template.transition
    ((100.0, 200.0, 300.0), (0, 5), True)
    """
    found: dict[str, Template] = {}
    for tokens in tokenize(text):
        if len(tokens) > LONGEST:
            raise fault(f"a template may have {LONGEST} words and signs, this has {len(tokens)}.", tokens[0].place)
        template = _Parser(tokens).template()
        if template.name in found:
            raise fault(
                f"there is a template called {template.name!r} already; give it another name.", template.place
            )
        for tree in (template.expression, template.condition):
            _check_height(tree)
        found[template.name] = template
    return tuple(found.values())


def _check_height(tree: Expression | None) -> None:
    """Long sums are tall trees, and what comes after walks them by recursion."""
    waiting = [(tree, 0)]
    while waiting:
        node, height = waiting.pop()
        if isinstance(node, Call | Aggregate):
            if height > TALLEST:
                raise fault(f"more than {TALLEST} operations hang on each other here; split it.", node.place)
            waiting += [(argument, height + 1) for argument in node.arguments]
            if isinstance(node, Aggregate):
                waiting.append((node.condition, height + 1))


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.at, self.brackets, self.depth = tokens, 0, 0, 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.at += 1
        return token

    def meets(self, *texts: str) -> bool:
        return self.token.kind in ("sign", "name") and self.token.text in texts

    def expect(self, text: str, why: str) -> Token:
        if not self.meets(text):
            raise self.unexpected(f"{text!r} {why}")
        return self.take()

    def unexpected(self, wanted: str) -> Exception:
        got = "the end of the line" if self.token.kind == "end" else repr(self.token.text)
        return fault(f"expected {wanted}, got {got}.", self.token.place)

    def name(self, what: str) -> Token:
        if self.token.kind != "name" or self.token.text in RESERVED:
            raise self.unexpected(what)
        return self.take()

    def template(self) -> Template:
        name = self.name("the name of a template")
        if not self.meets("state", "trans"):
            raise self.unexpected("'state' or 'trans'")
        transition = self.take().text == "trans"
        self.expect(":", "before the expression")
        parts: dict[str, object] = {}
        expression = self.expression()
        while self.meets("|"):
            self.take()
            if not self.meets(*CLAUSES):
                raise self.unexpected(
                    f"one of the clauses {', '.join(CLAUSES)} (an 'or' outside brackets is spelt so)"
                )
            clause = self.take()
            self.clause(clause, parts)
        if self.token.kind != "end":
            raise self.unexpected("'|' and a clause, or the end of the line")
        return Template(name.text, transition, expression, place=name.place, **parts)  # type: ignore[arg-type]

    def clause(self, clause: Token, parts: dict[str, object]) -> None:
        key = {
            "for": "loops",
            "where": "condition",
            "test": "tests",
            "win": "windows",
            "lag": "lags",
            "pow": "powers",
        }
        what = key[clause.text]
        if what in parts and what != "windows":
            raise fault(f"there is a {clause.text!r} clause already; give it one list.", clause.place)
        if ("powers" if what == "tests" else "tests" if what == "powers" else "") in parts:
            raise fault("a test is 0 or 1, and so are its powers; leave out 'test' or 'pow'.", clause.place)
        if what == "loops":
            parts[what] = self.loops()
        elif what == "condition":
            parts[what] = self.expression()
        elif what == "tests":
            parts[what] = self.distinct([self.test(), *self.more(self.test)], clause)
            parts["grid"] = self.grid(clause)
        elif what == "windows":
            if not self.meets(*WINDOWS):
                raise self.unexpected(f"a kind of window, one of {', '.join(WINDOWS)}")
            kind = self.take().text
            widths = [self.whole(1), *self.more(lambda: self.whole(1))]
            before = parts.get(what, ())
            parts[what] = self.distinct([*before, *((kind, width) for width in widths)], clause)  # type: ignore[misc]
        elif what == "lags":
            parts[what] = self.distinct([self.whole(0), *self.more(lambda: self.whole(0))], clause)
        else:
            parts[what] = self.distinct([self.number(), *self.more(self.number)], clause)

    def more(self, one):  # type: ignore[no-untyped-def]
        while self.meets(","):
            self.take()
            yield one()

    def distinct(self, values: list, clause: Token) -> tuple:
        for k, value in enumerate(values):
            if value in values[:k]:
                raise fault(f"{value!r} is listed twice, and so would its features be.", clause.place)
        return tuple(values)

    def loops(self) -> tuple[Loop, ...]:
        found = [self.loop(), *self.more(self.loop)]
        for k, loop in enumerate(found):
            if loop.variable in [other.variable for other in found[:k]]:
                raise fault(f"{loop.variable!r} is a loop variable already.", loop.place)
        return tuple(found)

    def loop(self) -> Loop:
        variable = self.name("a variable")
        self.expect("in", "and a domain")
        domain = self.name("the name of a domain")
        return Loop(variable.text, domain.text, variable.place.to(domain.place))

    def test(self) -> str:
        if not self.meets(*TESTS):
            raise self.unexpected(f"a test, one of {' '.join(TESTS)}")
        return self.take().text

    def number(self) -> float:
        minus = self.meets("-")
        if minus:
            self.take()
        if self.token.kind != "number":
            raise self.unexpected("a number")
        token = self.take()
        value = float(token.text)
        if not math.isfinite(value):
            raise fault("this number is too large.", token.place)
        return -value if minus else value

    def whole(self, least: int) -> int:
        token = self.token
        value = self.number()
        if value != int(value) or value < least or value > 10**7:
            raise fault(f"expected an integer ≥ {least} (steps), got {value:g}.", token.place)
        return int(value)

    def grid(self, clause: Token) -> tuple[float, ...]:
        found = [value for part in [self.step(), *self.more(self.step)] for value in part]
        if len(found) > LONGEST_GRID:
            raise fault(f"a grid may hold {LONGEST_GRID} thresholds, got {len(found)}.", clause.place)
        return self.distinct(sorted(found), clause)

    def step(self) -> list[float]:
        place = self.token.place
        first = self.number()
        if not self.meets(":"):
            return [first]
        self.take()
        last = self.number()
        self.expect(":", "and the step of the grid")
        step = self.number()
        if step <= 0 or last < first or (last - first) / step > LONGEST_GRID:
            raise fault("a grid a:b:s needs a ≤ b and a step s > 0, and not too many of them.", place)
        # each from the start and rounded to the digits that the text can mean: 0.1:0.5:0.1 holds 0.3 itself
        count = math.floor((last - first) / step + 1e-9) + 1
        return [float(f"{first + k * step:.12g}") for k in range(count)]

    def expression(self) -> Expression:
        self.depth += 1
        if self.depth > DEEPEST:
            raise fault(f"this is nested more than {DEEPEST} deep.", self.token.place)
        found = self.both()
        while self.meets("or") or (self.brackets and self.meets("|")):
            self.take()
            found = self.joined("or", found, self.both())
        self.depth -= 1
        return found

    def joined(self, function: str, *arguments: Expression) -> Call:
        return Call(function, arguments, arguments[0].place.to(arguments[-1].place))

    def both(self) -> Expression:
        found = self.turned()
        while self.meets("and", "&"):
            self.take()
            found = self.joined("and", found, self.turned())
        return found

    def turned(self) -> Expression:
        signs = []
        while self.meets("not", "~"):
            signs.append(self.take())
        found = self.compared()
        for sign in reversed(signs):
            found = Call("not", (found,), sign.place.to(found.place))
        return found

    def compared(self) -> Expression:
        found = self.sum()
        turned = self.meets("not") and self.tokens[self.at + 1].text == "in"
        if turned:
            self.take()
        if self.meets(*_COMPARISONS):
            sign = self.take().text
            found = self.joined(sign, found, self.sum())
            if self.meets(*_COMPARISONS):
                raise self.unexpected("one comparison; join two of them by 'and'")
        return Call("not", (found,), found.place) if turned else found

    def sum(self) -> Expression:
        found = self.product()
        while self.meets("+", "-"):
            sign = self.take().text
            found = self.joined(sign, found, self.product())
        return found

    def product(self) -> Expression:
        found = self.signed()
        while self.meets("*", "/"):
            sign = self.take().text
            found = self.joined(sign, found, self.signed())
        return found

    def signed(self) -> Expression:
        signs = []
        while self.meets("-"):
            signs.append(self.take())
        found = self.value()
        for sign in reversed(signs):
            if isinstance(found, Number):
                found = Number(-found.value, sign.place.to(found.place))
            else:
                found = Call("negative", (found,), sign.place.to(found.place))
        return found

    def value(self) -> Expression:
        token = self.token
        if token.kind == "number":
            return Number(self.number(), token.place)
        if token.kind == "text":
            return Text(self.take().text[1:-1], token.place)
        if self.meets("("):
            return self.bracket()
        if token.kind != "name" or token.text in RESERVED - {"Y", "Yp"}:
            raise self.unexpected("a number, a name, a function or '('")
        self.take()
        return self.call(token) if self.meets("(") else Name(token.text, token.place)

    def bracket(self) -> Expression:
        first = self.take()
        self.brackets += 1
        found = [self.expression(), *self.more(self.expression)]
        last = self.expect(")", "to close the bracket")
        self.brackets -= 1
        return found[0] if len(found) == 1 else Call("tuple", tuple(found), first.place.to(last.place))

    def call(self, name: Token) -> Expression:
        self.take()
        self.brackets += 1
        arguments: list[Expression] = []
        loops: tuple[Loop, ...] = ()
        condition = None
        if not self.meets(")"):
            arguments = [self.expression(), *self.more(self.expression)]
        if arguments and self.meets("for"):
            self.take()
            loops = self.loops()
            if self.meets("if"):
                self.take()
                condition = self.expression()
        last = self.expect(")", f"to close {name.text}(")
        self.brackets -= 1
        place = name.place.to(last.place)
        if not loops:
            return Call(name.text, tuple(arguments), place)
        if len(arguments) == 1 and isinstance(arguments[0], Call) and arguments[0].function == "tuple":
            arguments = list(arguments[0].arguments)
        return Aggregate(name.text, tuple(arguments), loops, condition, place)
