"""`python -m train`: mistakes in one sentence, a missing extra by its name."""

from __future__ import annotations

from collections.abc import Sequence

from train.errors import EXIT_OK, EXIT_USAGE, UserError, needs_extra, run_command
from train.usage import usage


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 done, 2 a mistake that the user can mend, 130 interrupted."""
    return run_command(_command, argv)


def _command(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage(), end="")
        return EXIT_OK if argv else EXIT_USAGE
    with needs_extra("train", "training"):
        from train import ranks  # noqa: PLC0415 - needs the extra, which may be missing
        from train.commands import dispatch  # noqa: PLC0415 - as above
    with ranks.joined():
        try:
            return dispatch(argv)
        except UserError as error:
            if ranks.tells(error):
                raise
            return EXIT_USAGE  # another rank says the same
