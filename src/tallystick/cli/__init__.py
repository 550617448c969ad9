"""The command line: says nothing that the library cannot.

In: arguments. Out: text for a person, JSON for a program (``--json``), and an exit code:
0 fine, 1 damage or disagreement found, 2 cannot read or wrong usage. Each command stands in
a module below ``commands``, as a click command, and is loaded when it is used. A new one needs its
module and one line in `COMMANDS`.
"""

from __future__ import annotations

import os
import sys
from pkgutil import resolve_name

try:
    import click
    import rich  # noqa: F401 - the commands need it; say so at once, in one place
except ImportError:  # the script comes with the core, which does without them
    sys.stderr.write(
        "tallystick: the command line needs click and rich; type: pip install 'tallystick[cli]'\n"
    )
    sys.exit(2)  # `USAGE`

from tallystick import __version__
from tallystick.cli.output import complain, complain_of_usage, print_nothing_more
from tallystick.errors import TallystickError

COMMANDS: dict[str, str] = {
    "triage": "triage:command",
    "inspect": "inspect:command",
    "explain": "explain:command",
    "verify": "inspect:verify_command",
    "dump": "dump:command",
    "export": "export:command",
    "pipeline": "pipeline:command",
    "report": "report:command",
    "indoubt": "indoubt:command",
    "runbook": "indoubt:runbook_command",
    "doctor": "indoubt:doctor_command",
    "convert": "convert:command",
    "scrub": "upkeep:scrub_command",
    "store": "upkeep:store_command",
    "backlog": "backlog:command",
    "replay": "replay:command",
    "bench": "bench:command",
}
"""Module of this package and name of each command, in the order of the help page."""

USAGE = 2


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
        command = resolve_name(f"tallystick.cli.commands.{COMMANDS[cmd_name]}")
        assert isinstance(command, click.Command)
        return command


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


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        complain_of_usage(error)
        code = USAGE
    except (click.Abort, KeyboardInterrupt):
        code = complain("interrupted", code=130)
    except BrokenPipeError:
        print_nothing_more()
        code = 0
    except TallystickError as error:
        code = complain(str(error), code=USAGE)
    except OSError as error:
        code = complain(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), USAGE)
    except Exception as error:  # the edge of the process: a person gets a sentence
        if os.environ.get("TALLYSTICK_TRACEBACK"):
            raise
        code = complain(
            f"this should not have happened: {type(error).__name__}: {error}. "
            "Set TALLYSTICK_TRACEBACK=1 to see where, and please report it",
            USAGE,
        )
    sys.exit(code if isinstance(code, int) else 0)
