"""The command ``crfield``: its verbs, and what happens when one of them fails.

Exit codes: 0 when all went well; 1 when data, a template or a model cannot be used (``error: …`` on standard error,
without a traceback); 2 when the command line is wrong, or its verb has no answer for this kind of model; 130 after
Ctrl-C; 141 when the reader of our output has gone (``| head``), as a signal would have ended other programs.
``CRFIELD_DEBUG=1`` lets the traceback through.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import crfield
from crfield.cli.messages import complain, helped, note, plain_warnings
from crfield.cli.model import WrongVerb
from crfield.cli.options import spread
from crfield.cli.paths import Verb
from crfield.cli.verbs.compare_inference import compare_inference
from crfield.cli.verbs.compare_trainers import compare_trainers
from crfield.cli.verbs.convert import convert
from crfield.cli.verbs.demo import demo
from crfield.cli.verbs.encode import encode
from crfield.cli.verbs.evaluate import evaluate
from crfield.cli.verbs.explain import explain
from crfield.cli.verbs.gallery import gallery
from crfield.cli.verbs.inspect import inspect
from crfield.cli.verbs.models import models
from crfield.cli.verbs.simulate import simulate
from crfield.cli.verbs.studies import experiment, reproduce
from crfield.cli.verbs.tag import tag
from crfield.cli.verbs.train import train
from crfield.cli.verbs.tuning.choose import choose
from crfield.cli.verbs.tuning.tune import tune
from crfield.errors import CrfieldError
from crfield.storage.limits import TIMES, set_growth

FAILED, WRONG, INTERRUPTED, PIPE_CLOSED = 1, 2, 130, 141


class Verbs(TyperGroup):
    """The group of verbs; turns errors into a line and an exit code."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """Read what stands before the verb."""
        with helped(list(self.commands)):
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            with plain_warnings(), helped(list(self.commands)):
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
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
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


for verb in (
    train,
    tune,
    choose,
    tag,
    evaluate,
    inspect,
    explain,
    convert,
    encode,
    models,
    compare_inference,
    compare_trainers,
    experiment,
    reproduce,
    simulate,
    gallery,
    demo,
):
    app.command(cls=Verb)(spread(verb))


def main() -> None:
    """Entry point of the script."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a sign of a table gets its code instead of a crash.
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    app(prog_name="crfield")


if __name__ == "__main__":
    main()
