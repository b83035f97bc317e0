"""What ``import crfield``, asking a saved model and the command line cost, in fresh processes taking turns.

The yardstick is the import of the libraries below it: numpy, scipy.sparse, scipy.optimize, sklearn.base. Names of
``crfield`` load their modules when first used, so the cost of the estimator itself, on top of those libraries, is
shown too. A saved chain is loaded and asked of one sentence, which needs numpy alone: the CPU time of that, the
modules it leaves, and how many packages came that tagging does not need. Last, CPU seconds of whole commands, less
those of an interpreter that does nothing.
"""

from __future__ import annotations

from benchmarks.children import BASE, run_task
from benchmarks.corpora import Bench
from benchmarks.table import Row, seconds
from benchmarks.timing import Timing
from crfield import ChainCRF

REQUIRED = 0.3
ESTIMATOR = "from crfield import ChainCRF"
UNNEEDED = ("sklearn", "scipy", "joblib", "typer", "rich", "matplotlib", "pandas")


def run(bench: Bench) -> list[Row]:
    """The package alone, and the estimator on top of its libraries."""
    package, base, estimator, unwanted = Timing(), Timing(), Timing(), set()
    for _ in range(3 if bench.quick else 9):
        alone = run_task("imports", "import crfield", ESTIMATOR)
        package.seconds.append(alone["seconds"][0])
        unwanted |= set(alone["unwanted"])
        both = run_task("imports", BASE, ESTIMATOR)
        base.seconds.append(both["seconds"][0])
        estimator.seconds.append(both["seconds"][1])
    return [
        *_saved(bench),
        *_commands(bench),
        Row(
            "imports: import crfield, share of its libraries' import",
            package.best / base.best,
            required=REQUIRED,
            better="less",
            ours=seconds(package.best),
            rival=seconds(base.best),
        ),
        Row(
            "imports: ChainCRF on top of the libraries, share of theirs",
            estimator.best / base.best,
            required=REQUIRED,
            better="less",
            ours=seconds(estimator.best),
            rival=seconds(base.best),
        ),
        Row(
            "imports: of typer, rich, matplotlib, pandas, how many came along",
            float(len(unwanted)),
            unit="",
            required=0,
            better="less",
            note=", ".join(sorted(unwanted)),
        ),
    ]


def _saved(bench: Bench) -> list[Row]:
    """``crfield.load(path).predict(X)`` in a fresh process, beside the import of the libraries."""
    path = bench.path("imports.crfield")
    ChainCRF().fit([[["word=the"], ["word=dog"]]], [["D", "N"]]).save(path)
    ours, base, told = Timing(), Timing(), {}
    for _ in range(3 if bench.quick else 9):
        told = run_task("ask_saved", path)
        ours.seconds.append(sum(told["seconds"]))
        base.seconds.append(run_task("imports", BASE)["seconds"][0])
    packages = told["packages"]
    most = sorted(packages.items(), key=lambda item: -item[1])[:4]
    came = sorted(set(packages) & set(UNNEEDED))
    shown = ", ".join(f"{name} {count}" for name, count in most)
    return [
        Row(
            "imports: load a chain and tag a sentence, share of the libraries' import",
            ours.best / base.best,
            required=1.0,
            better="less",
            ours=seconds(ours.best),
            rival=seconds(base.best),
            note=f"{sum(packages.values())} modules: {shown}",
        ),
        Row(
            f"imports: of {', '.join(UNNEEDED)}, how many came along",
            float(len(came)),
            unit="",
            required=0,
            better="less",
            note=", ".join(came),
        ),
    ]


def _commands(bench: Bench) -> list[Row]:
    """CPU seconds of ``crfield --version``, ``--help`` and ``tag`` of one sentence."""
    model, text = bench.path("tag.crfield"), bench.path("tag.txt")
    ChainCRF(template="U0:%x[0,0]").fit([[("the",), ("dog",)]], [["D", "N"]]).save(model)
    with open(text, "w", encoding="utf-8") as file:
        file.write("the\ndog\n")
    start = "import sys; from crfield.cli.main import main; sys.exit(main())"
    cases = {"--version": 0.15, "--help": 0.15, f"tag -m {model} {text}": 0.5}
    idle, spent = Timing(), {words: Timing() for words in cases}
    for _ in range(3 if bench.quick else 7):
        idle.seconds.append(run_task("command", "-c", "pass")["seconds"])
        for words, timing in spent.items():
            timing.seconds.append(run_task("command", "-c", start, *words.split())["seconds"])
    return [
        Row(
            f"imports: crfield {words.split()[0]}, CPU seconds above the interpreter's",
            timing.best - idle.best,
            unit="s",
            required=cases[words],
            better="less",
            ours=seconds(timing.best),
            rival=seconds(idle.best),
        )
        for words, timing in spent.items()
    ]
