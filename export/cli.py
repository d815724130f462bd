"""`python -m export model.pt`: mistakes in one sentence, a missing extra by its name."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from train.errors import EXIT_OK, ConfigError, needs_extra, run_command


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write a trained model as an ONNX bundle and prove that it gives the same answers."""

    checkpoint: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="model.pt")]
    """What `python -m train` saved."""
    out: Path | None = None
    """Folder to write; unless told model.bundle beside the checkpoint."""
    name: str | None = None
    """Name that clients ask for; unless told DATASET-METHOD."""

    with_energy: bool = False
    """Add energy.onnx, SEAL's loss-net asked by gradient descent, for `python -m serve bench`."""

    def __post_init__(self) -> None:
        if self.name is not None and not (self.name.isprintable() and self.name.strip("/ ")):
            raise ConfigError(
                f"--name {self.name!r} cannot be a name: use letters, digits, - and _"
            )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 done, 2 a mistake that the user can mend."""
    return run_command(_command, argv)


def _command(argv: Sequence[str]) -> int:
    options = _parse(argv)
    with needs_extra("export", "exporting"):
        from export.exporting import export_checkpoint  # noqa: PLC0415 - needs the extra
    out = options.out or options.checkpoint.parent / "model.bundle"
    manifest, parity = export_checkpoint(
        options.checkpoint, out, name=options.name, with_energy=options.with_energy
    )
    print(
        f"saved {out}: {manifest.name}, version {manifest.version}, "
        f"{manifest.input.width} features, {manifest.label_count} labels"
    )
    print(
        f"largest difference to the checkpoint: {parity.largest_difference:.2e} "
        f"over {parity.rows} test rows. Next:"
    )
    print(f"  python -m serve {shlex.quote(str(out))}")
    return EXIT_OK


def _parse(argv: Sequence[str]) -> Options:
    try:
        return tyro.cli(Options, prog="python -m export", args=list(argv))
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            print("example: python -m export runs/demo/seal-0/model.pt")
        raise
