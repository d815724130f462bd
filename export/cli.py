"""`python -m export model.pt`: mistakes in one sentence, a missing extra by its name."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from export.manifest import InputSpec, Search
from export.signing import sign_bundle
from train.errors import EXIT_OK, ConfigError, needs_extra, run_command


@dataclass(frozen=True, kw_only=True)
class SignOptions:
    """Sign a bundle, for servers with --trusted-key."""

    bundle: Annotated[Path, tyro.conf.Positional]
    """Folder that `python -m export` wrote."""
    key: Path
    """Private ed25519 key in PEM."""


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
    int8: bool = False
    """Matrices in 8 bits; of very many labels the best are scored again in 32."""
    index: Literal["ivf"] | None = None
    """Add an index over the labels, for a million of them; needs the extra `ann`."""
    constrained: bool = False
    """Of words: answers are the likeliest labels in which no core role has two spans."""

    def __post_init__(self) -> None:
        if self.name is not None and not (self.name.isprintable() and self.name.strip("/ ")):
            raise ConfigError(
                f"--name {self.name!r} cannot be a name: use letters, digits, - and _"
            )
        if self.int8 and self.index:
            raise ConfigError("--int8 and --index are two ways to one end: choose one of them")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 done, 2 a mistake that the user can mend."""
    return run_command(_command, argv)


def _command(argv: Sequence[str]) -> int:
    if argv and argv[0] == "sign":
        return _sign(tyro.cli(SignOptions, prog="python -m export sign", args=list(argv[1:])))
    options = _parse(argv)
    with needs_extra("export", "exporting"):
        from export.exporting import (  # noqa: PLC0415 - needs the extra
            ExportOptions,
            export_checkpoint,
        )
    out = options.out or options.checkpoint.parent / "model.bundle"
    manifest, parity = export_checkpoint(
        options.checkpoint,
        out,
        ExportOptions(
            name=options.name,
            with_energy=options.with_energy,
            int8=options.int8,
            index=options.index,
            constrained=options.constrained,
        ),
    )
    print(
        f"saved {out}: {manifest.name}, version {manifest.version}, "
        f"{_rows_text(manifest.input)}, {manifest.label_count} labels"
    )
    if manifest.search is not None:
        print(_search_text(manifest.search))
    if manifest.quantized is not None:
        print(_quality_text(manifest.quantized))
    print(
        f"largest difference to the checkpoint: {parity.largest_difference:.2e} "
        f"over {parity.rows} test rows. Next:"
    )
    print(f"  python -m serve {shlex.quote(str(out))}")
    return EXIT_OK


def _sign(options: SignOptions) -> int:
    sign_bundle(options.bundle, options.key)
    print(f"signed {options.bundle}; python -m serve --trusted-key PUBLIC.pem checks it")
    return EXIT_OK


def _rows_text(spec: InputSpec) -> str:
    if spec.image is not None:
        return f"images of {spec.image.height} x {spec.image.width} pixels"
    if spec.kind == "words":
        return "words" + (" and a predicate" if spec.predicate else "")
    return f"{spec.width} features" if spec.kind != "text" else f"text as {spec.encoding}"


def _search_text(search: Search) -> str:
    how = "8 bits" if search.nprobe is None else f"{search.nprobe} cells of the index"
    return f"{how}: {search.recall:.1%} of the 10 best labels found for {search.rows} test rows"


def _quality_text(quality: dict[str, float]) -> str:
    after, before = quality["macro_f1"], quality["macro_f1_float32"]
    return f"8 bits: macro-F1 {after:.3f} of {quality['rows']:.0f} test rows, {before:.3f} in 32"


def _parse(argv: Sequence[str]) -> Options:
    try:
        return tyro.cli(Options, prog="python -m export", args=list(argv))
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            print("example: python -m export runs/demo/seal-0/model.pt")
            print("`python -m export sign BUNDLE --key private.pem` signs a bundle instead")
        raise
