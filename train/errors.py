"""Mistakes that the user can mend: one sentence that says what to do, exit code 2, no traceback.

UserError
├── ConfigError      an option, preset or method name that cannot be used
├── DataError        a data set that is missing or malformed
├── CheckpointError  a model.pt that is not one, or of an unknown schema
└── BundleError      (export.bundle) a bundle that is not one, is damaged, or of an unknown schema
"""

from __future__ import annotations

import difflib
import errno
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

OWN_PACKAGES = ("train", "export", "serve")
WHAT_TO_DO = {
    errno.ENOSPC: "; free some space, then go on where it stopped",
    errno.EDQUOT: "; free some space, then go on where it stopped",
    errno.EROFS: "; choose a folder that can be written to",
    errno.EACCES: "; choose a folder that you may use",
    errno.EMFILE: "; allow more open files, with `ulimit -n`",
}
"""Ends of sentences about what the operating system refuses."""
EXIT_OK, EXIT_BUG, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


class UserError(Exception):
    """Its message is a full sentence: what was expected, what came, what to do."""


class ConfigError(UserError):
    """An option, preset or method name that cannot be used."""


class DataError(UserError):
    """A data set that is missing or malformed."""


class CheckpointError(UserError):
    """A `model.pt` that is not one, or of an unknown schema."""


def run_command(command: Callable[[Sequence[str]], int], argv: Sequence[str] | None = None) -> int:
    """Run a command line and turn the user's mistakes into one line on stderr and exit code 2."""
    try:
        return command(sys.argv[1:] if argv is None else argv)
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_USAGE
    except OSError as error:
        if error.strerror is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"error: {where}{error.strerror}{WHAT_TO_DO.get(error.errno or 0, '')}\n")
        return EXIT_USAGE
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED


@contextmanager
def needs_extra(extra: str, purpose: str) -> Iterator[None]:
    """Answer the import of a package that is not installed by the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in OWN_PACKAGES:
            raise
        raise UserError(f'{purpose} needs {name}: pip install "labelwright[{extra}]"') from error


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest known one, or all of them."""
    known = sorted(known)
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(known)}"
