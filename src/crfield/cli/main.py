"""The command ``crfield``: its verbs, and what happens when one of them fails.

Exit codes: 0 when all went well; 1 when data, a template or a model cannot be used (``error: …`` on standard error,
without a traceback); 2 when the command line is wrong, or its verb has no answer for this kind of model; 130 after
Ctrl-C; 141 when the reader of our output has gone (``| head``), as a signal would have ended other programs.
``CRFIELD_DEBUG=1`` lets the traceback through.

A verb is imported when it is called: ``crfield --help`` shows what the table below says of each, and neither NumPy
nor scikit-learn is loaded for it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import crfield
from crfield.cli.messages import WrongVerb, complain, helped, note, plain_warnings
from crfield.errors import CrfieldError
from crfield.storage.limits import TIMES, set_growth

FAILED, WRONG, INTERRUPTED, PIPE_CLOSED = 1, 2, 130, 141
SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

VERBS = {  # the module below ``verbs`` that has a function of this name, and the first line of its docstring
    "train": ("train", "Train a model on labelled sequences and write it to a file."),
    "tune": (
        "tuning.tune",
        "Choose l1 and l2 by cross-validation over sequences; print the scores and write the best model.",
    ),
    "choose": (
        "tuning.choose",
        "Try the reasonable models on held-out people, trials or places; print the table and write the best one.",
    ),
    "select": ("sensors.select", "Train a model that chooses its features out of many, and show which they are."),
    "tag": ("tag", "Label data with a model."),
    "evaluate": ("evaluate", "Score a model on labelled data, or a file that was tagged already."),
    "stream": ("sensors.stream", "Label standard input line by line, each line as it comes."),
    "export": (
        "sensors.export",
        "Write a model of numbers as a C header (.h) or a Python module (.py) that answers like crfield stream.",
    ),
    "inspect": ("inspect", "Show what a model has learnt: labels, sizes, training, transitions, strongest features."),
    "explain": (
        "explain",
        "Tell why a model labels as it does: one step, a sequence, the errors, or the features that matter.",
    ),
    "report": (
        "report",
        "Judge a model on labelled data and write what it does, where it errs and why as one page to look at.",
    ),
    "serve": (
        "serving.serve",
        "Serve models on this machine: an interface for programs, a page for people, labelling.",
    ),
    "labels": (
        "serving.labels",
        "Write the labels that people gave to crfield serve --label as columns (CoNLL).",
    ),
    "convert": ("convert", "Turn a model file into another tool's."),
    "encode": ("encode", "Encode labelled files for training from disk: crfield encode INPUT... OUTPUT."),
    "models": ("models", "Which model when: what each labels, what it assumes, and when to use it."),
    "compare-inference": (
        "compare_inference",
        "Ask every engine about the same scores: accuracy, marginals against exact ones, log Z, time.",
    ),
    "compare-trainers": (
        "compare_trainers",
        "Train by several solvers and compare objective and held-out score against CPU time.",
    ),
    "experiment": (
        "studies",
        "Compute one of the tables of the documentation again, and say whether what it claims is so.",
    ),
    "reproduce": ("studies", "Run an experiment of a paper again: table, charts, intervals, and which claims hold."),
    "simulate": ("simulate", "Let robots play tag or soccer, and write where they were and what was going on."),
    "demo": ("demo", "Train on generated ingredient phrases, and show what comes of it."),
}


class Verbs(TyperGroup):
    """The group of verbs; turns errors into a line and an exit code."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """Read what stands before the verb."""
        with helped(list(VERBS)):
            return super().make_context(*arguments, **more)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the verbs, in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb of a name, imported now; None where there is none."""
        if cmd_name in VERBS and cmd_name not in self.commands:
            self.commands[cmd_name] = loaded(cmd_name)
        return self.commands.get(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the verbs by what the table says of them, as plain lines: importing rich, which draws a verb's own
        help, takes longer than all else here.
        """
        held, markup = self.commands, self.rich_markup_mode
        self.commands = {name: TyperCommand(name, short_help=line) for name, (_, line) in VERBS.items()}
        self.rich_markup_mode = None
        try:
            super().format_help(ctx, formatter)
        finally:
            self.commands, self.rich_markup_mode = held, markup

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            with plain_warnings(), helped(list(VERBS)):
                result = super().invoke(ctx)
                sys.stdout.flush()
                return result
        except BrokenPipeError:
            _drop_output()
            raise typer.Exit(PIPE_CLOSED) from None
        except KeyboardInterrupt:
            note("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except (CrfieldError, OSError, MemoryError) as error:
            if os.environ.get("CRFIELD_DEBUG", "0") not in ("", "0"):
                raise
            complain(_words(error))
            raise typer.Exit(WRONG if isinstance(error, WrongVerb) else FAILED) from None


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _drop_output() -> None:
    """Point standard output nowhere, so that Python's last flush does not complain about the closed pipe."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


app = typer.Typer(
    cls=Verbs,
    name="crfield",
    help="Conditional random fields: train, tag, evaluate, inspect.",
    epilog="Every verb has its own help: crfield train --help",
    no_args_is_help=True,
    **SETTINGS,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"crfield {crfield.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and end.")
    ] = False,
    max_growth: Annotated[
        float,
        typer.Option(
            "--max-growth",
            min=0.0,
            metavar="TIMES",
            help="How many times its size a file may grow in memory (gzip, models), above 256 MiB; 0 is no limit.",
        ),
    ] = TIMES,
) -> None:
    """Conditional random fields: train, tag, evaluate, inspect."""
    set_growth(max_growth or None)


def loaded(name: str) -> Any:
    """The command of a verb, with its options."""
    from crfield.cli.options import spread
    from crfield.cli.paths import Verb

    module = import_module(f"crfield.cli.verbs.{VERBS[name][0]}")
    alone = typer.Typer(add_completion=False, **SETTINGS)
    alone.command(name, cls=Verb)(spread(getattr(module, name.replace("-", "_"))))
    return typer.main.get_command(alone)


def main() -> None:
    """Entry point of the script."""
    for output in (sys.stdout, sys.stderr):
        # A terminal that cannot show a sign of a table gets its code instead of a crash.
        with suppress(AttributeError, ValueError):
            output.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    app(prog_name="crfield")


if __name__ == "__main__":
    main()
