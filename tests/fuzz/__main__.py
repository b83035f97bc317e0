"""`make fuzz`: damaged and hostile inputs of every format, and a table of what became of them.

    python -m tests.fuzz --count 2000 --seed 1 [--only "column file"] [--show]

``--count`` inputs are shared out among the formats. The exit code is 1 if any input crashed, hung, took too much
memory, raised an error that is none of crfield's, or was believed although it was damaged.
"""

from __future__ import annotations

import argparse
import sys
import warnings

from tests.fuzz.formats import formats
from tests.fuzz.runner import Outcome, input_of, run_format

HEAD = ("format", "inputs", "refused", "used", "other errors", "crashes", "hangs", "too much memory", "silent damage",
        "most memory")  # fmt: skip


def row(one: Outcome) -> str:
    """A line of the page's table, in Markdown."""
    numbers = (one.inputs, one.refused, one.answered, one.wrong, one.crashes, one.hangs, one.large, one.silent)
    return _line(one.name, *(f"{n:,}" for n in numbers), f"{one.peak / 2**20:.0f} MiB")


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--count", type=int, default=2000, help="inputs of all formats together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one format by name")
    parser.add_argument("--number", type=int, help="run this one input of --only here, without a process of its own")
    parser.add_argument("--show", action="store_true", help="one line for each kind of trouble")
    parser.add_argument("--unlimited", action="store_true", help="no limit of memory, as sanitizers need it")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    chosen = [form for form in formats() if options.only in (None, form.name)]
    if options.number is not None:
        chosen[0].use(input_of(chosen[0], options.seed, options.number))
        return 0
    outcomes, whole = [], sum(form.share for form in chosen)
    print(_line(*HEAD), _line("---", *["---:"] * (len(HEAD) - 1)), sep="\n", flush=True)
    for k, form in enumerate(chosen):
        ends = [options.count * sum(one.share for one in chosen[:n]) // whole for n in (k, k + 1)]
        outcomes.append(run_format(form, seed=options.seed, count=ends[1] - ends[0], limited=not options.unlimited))
        print(row(outcomes[-1]), flush=True)
        if options.show or not outcomes[-1].clean:
            for text in outcomes[-1].trouble.values():
                print(f"{form.name}: {text}", file=sys.stderr, flush=True)
    return 0 if all(one.clean for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
