"""The command line: says nothing that the library cannot.

In: arguments. Out: text for a person, JSON for a program (``--json``), and an exit code:
0 fine, 1 damage or disagreement found, 2 cannot read or wrong usage. Each command stands in
a module of its own, as a click command, in the package of its group on the help page (``look``,
``act``, ``watch``, ``build``), and is loaded when it is used. A new one needs its module and one
line in `COMMANDS`.
"""

from __future__ import annotations

import io
import os
import sys
from difflib import get_close_matches
from pkgutil import resolve_name

try:
    import click
    import rich  # noqa: F401 - the commands need it; say so at once, in one place
    from click.shell_completion import shell_complete
except ImportError:  # the script comes with the core, which does without them
    sys.stderr.write(
        "tallystick: the command line needs click and rich; type: pip install 'tallystick[cli]'\n"
    )
    sys.exit(2)  # `USAGE`

from tallystick import __version__
from tallystick.cli.output import complain, complain_of_usage, print_nothing_more
from tallystick.errors import TallystickError
from tallystick.printable import shell_quoted
from tallystick.refusals import reason_of

COMPLETE = "_TALLYSTICK_COMPLETE"
"""Variable by which a shell asks for completions, as click has it."""

COMMANDS: dict[str, str] = {
    "triage": "look.triage:command",
    "explain": "look.explain:command",
    "inspect": "look.inspect:command",
    "verify": "look.verify:command",
    "rows": "look.rows:command",
    "history": "look.history:command",
    "asof": "look.asof:command",
    "diff": "look.diff:command",
    "sql": "look.sql:command",
    "dump": "look.dump:command",
    "export": "look.export:command",
    "indoubt": "act.indoubt:command",
    "runbook": "act.runbook:command",
    "repair": "act.repair:command",
    "salvage": "act.salvage:command",
    "bundle": "act.bundle:command",
    "undo": "act.undo:undo_command",
    "redo": "act.undo:redo_command",
    "replay": "act.replay:command",
    "convert": "act.convert:command",
    "doctor": "watch.doctor:command",
    "scrub": "watch.scrub:command",
    "backlog": "watch.backlog:command",
    "store": "watch.store:command",
    "pipeline": "build.pipeline:command",
    "report": "build.report:command",
    "demo": "build.demo:command",
    "bench": "build.bench:command",
}
"""Module of this package and name of each command, in the order of the help page."""

GROUPS: dict[str, tuple[str, str]] = {
    "triage": (
        "Look: what is in the logs, what would a restart do?",
        "triage logs; explain logs/h2; rows logs --in-doubt",
    ),
    "indoubt": (
        "Act: what is due, and how is it done?",
        "indoubt list logs; indoubt explain 62616e6b logs; runbook logs > runbook.md",
    ),
    "doctor": (
        "Watch: will it go well tomorrow?",
        "doctor coordinator --resource pg=URL; scrub logs --rate 20MB/s; backlog spool",
    ),
    "pipeline": (
        "Build: tables, pictures, figures",
        "pipeline run logs --out tables; report tables; bench list",
    ),
}
"""Title and three examples of each group of commands, by its first one."""

USAGE = 2
PIPE_GONE = 141
"""What a shell tells of a program that SIGPIPE ended, which not every system has."""


class _Commands(click.Group):
    """Loads a command's module when its name is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click asks
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click passes it
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = resolve_name(f"tallystick.cli.{COMMANDS[cmd_name]}")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}.{_meant(args)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: list[tuple[str, str]] = []
        examples = ""
        for name in COMMANDS:
            if name in GROUPS:
                _write_group(formatter, rows, examples)
                title, examples = GROUPS[name]
                formatter.write_paragraph()
                formatter.write_text(title)
                rows = []
            command = self.get_command(ctx, name)
            rows.append((name, "" if command is None else command.get_short_help_str(66)))
        _write_group(formatter, rows, examples)


def _meant(args: list[str]) -> str:
    """Return what a name that is no command may have meant."""
    if os.path.lexists(args[0]):
        return f" It is a path. Did you mean: tallystick triage {shell_quoted(args[0])}"
    near = get_close_matches(args[0], COMMANDS, n=1)
    return f" Did you mean {near[0]!r}?" if near else " tallystick --help lists all"


def _write_group(
    formatter: click.HelpFormatter, rows: list[tuple[str, str]], examples: str
) -> None:
    if rows:
        formatter.indent()
        formatter.write_dl(rows)
        for example in examples.split("; "):
            formatter.write_text(f"$ tallystick {example}")
        formatter.dedent()


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tallystick")
def tallystick() -> None:
    """Read transaction logs and say what a restart would keep, undo, leave in doubt and lose.

    Systems: Bitronix, JBoss/HornetQ/Artemis/Narayana, H2, Derby, CloudTran and Tallystick.

    Reading changes nothing. Exit code: 0 fine, 1 damage or disagreement found, 2 cannot read or
    wrong usage.
    """


def _run(arguments: list[str]) -> object:
    # Command.main() would turn a broken pipe into exit code 1, which means damage here.
    with tallystick.make_context("tallystick", arguments) as context:
        return tallystick.invoke(context)


_STOPPING = ("strict", "surrogateescape")
"""Error handlers that take no letter which an encoding has not; the second is that of LC_ALL=C."""


def _open_standard_streams() -> None:
    """Give a process without them, as daemons are, ones that have nothing and take everything.

    What the terminal's encoding has no letter for is shown as an escape, and ends no command.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in _STOPPING:
        sys.stdout.reconfigure(errors="backslashreplace")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    _open_standard_streams()
    try:
        if asked := os.environ.get(COMPLETE):  # by a shell; main() of click would do it, too
            sys.exit(shell_complete(tallystick, {}, "tallystick", COMPLETE, asked))
        code = _run(sys.argv[1:] if arguments is None else arguments)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        complain_of_usage(error)
        code = USAGE
    except (click.Abort, KeyboardInterrupt):
        code = complain("interrupted", code=130)
    except BrokenPipeError:  # not all was looked at: 0 would say that it is fine
        print_nothing_more()
        code = PIPE_GONE
    except TallystickError as error:
        code = complain(str(error), USAGE, error.file)
    except OSError as error:
        text = f"{error.filename or ''}: {reason_of(error)}".lstrip(": ")
        code = complain(text, USAGE, f"{error.filename or ''}")
    except Exception as error:  # the edge of the process: a person gets a sentence
        if os.environ.get("TALLYSTICK_TRACEBACK"):
            raise
        code = complain(
            f"this should not have happened: {type(error).__name__}: {error}. "
            "Set TALLYSTICK_TRACEBACK=1 to see where, and please report it",
            USAGE,
        )
    sys.exit(code if isinstance(code, int) else 0)
