"""The command `vlcs`, also `python -m vlcs`.

JSON goes to stdout, words for people to stderr. Exit codes: that of the program for `run`, that of
the demo for `demo`; 0 where all is well; 1 where something could not be done; 2 for a command
line that cannot be understood.
"""

import argparse
import sys
from collections.abc import Sequence

from vlcs._cli import _run, _show

_RUN_HELP = """\
usage: vlcs run [python options] (app.py | -m module | -c code | -) [arguments ...]

Starts a Python program with room in static TLS for many contexts.

Libraries with an OpenMP runtime take initial-exec TLS, which a running process cannot enlarge: after a
plain `import vlcs` there is room for 2 or 3 contexts with PyTorch or scikit-learn, and this command starts
the program with 64 kB. Everything else is as with `python`, exit code included. Programs that it starts do
not inherit the room.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; gives its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # `run` and `demo` have options of their own, which argparse would take for its own.
    if arguments[:1] == ["run"]:
        if arguments[1:2] in (["-h"], ["--help"]):
            print(_RUN_HELP, end="")
            return 0
        return _run.run(arguments[1:])
    if arguments[:1] == ["demo"]:
        from vlcs._demo import main as demo  # noqa: PLC0415 - the other commands need none of it

        return demo(arguments[1:])
    return _others(arguments)


def _others(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("vlcs", description="Virtual Library Contexts.")
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="command")
    commands.add_parser("run", help="start a Python program with room for many contexts", add_help=False)
    commands.add_parser(
        "demo", help="see libraries fight in one process, and not in contexts", add_help=False
    )
    commands.add_parser("show", help="print what contexts can have here: CPUs, Python, limits (JSON)")
    doctor = commands.add_parser(
        "doctor", help="say which resources a context can be held to here, why not others, and the cure"
    )
    doctor.add_argument("--json", action="store_true", help="print it as JSON")
    chosen = parser.parse_args(arguments)
    if chosen.version:
        from vlcs import __version__  # noqa: PLC0415 - see there

        print(__version__)
        return 0
    if chosen.command == "show":
        return _show.show()
    if chosen.command == "doctor":
        from vlcs._cli import _doctor  # noqa: PLC0415 - `vlcs run` needs none of it

        return _doctor.doctor(as_json=chosen.json)
    parser.print_help(sys.stderr)
    return 2
