"""`python -m train`: mistakes in one sentence, a missing extra by its name."""

from __future__ import annotations

from collections.abc import Sequence

from train.errors import UserError, run_command

OWN_PACKAGES = ("train", "export", "serve")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 done, 2 a mistake that the user can mend, 130 interrupted."""
    return run_command(_command, argv)


def _command(argv: Sequence[str]) -> int:
    try:
        from train.commands import dispatch  # noqa: PLC0415 - needs the extra, which may be missing
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in OWN_PACKAGES:
            raise
        raise UserError(f'training needs {name}: pip install "labelwright[train]"') from error
    return dispatch(argv)
