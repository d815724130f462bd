"""The bundle: the folder that `python -m export` writes and `python -m serve` reads. No torch here.

model.bundle/
  manifest.json   what the model is, expects and scores; sha256 and size of each file
  model.onnx      inputs `features` (rows, width) float32 and `k` () int64;
                  outputs `scores` (rows, labels), `top_scores` and `top_labels` (rows, k)
  labels.json     label names, one for each column
  probe.npz       real rows (`features`) with the scores torch gave (`scores`)
  energy.onnx     only with `--with-energy`: an energy network asked by gradient descent, inputs and
                  outputs as in model.onnx; its scores are `energy_scores` in probe.npz
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.errors import UserError

SCHEMA_VERSION = 1
MANIFEST, MODEL, LABELS, PROBE = "manifest.json", "model.onnx", "labels.json", "probe.npz"
ENERGY = "energy.onnx"
PROBE_TOLERANCE = 1e-5


class BundleError(UserError):
    """A folder that is no bundle, is damaged, or was written by another version."""


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """What one row must be."""

    kind: str
    """`features`: a vector of `width` numbers."""
    width: int
    names: list[str] | None = None
    """Feature names in column order, where the data set has them."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Scores from which a label counts as predicted, chosen on validation rows."""

    tuned: float
    """One threshold for all labels, best example-F1."""
    per_label: list[float]
    """One for each label, best F1 of that label."""


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """Size and hash of one file, checked before anything of it is used."""

    sha256: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything about a bundle but its numbers."""

    name: str
    version: str
    """First 12 hex digits of the graph's sha256: the same weights have the same version."""
    method: str
    task: str
    dataset: str
    input: InputSpec
    label_count: int
    thresholds: Thresholds
    test_scores: dict[str, float]
    largest_difference: float
    """Between torch and ONNX Runtime, over the scores of the probe rows."""
    versions: dict[str, str]
    schema: int = SCHEMA_VERSION
    files: dict[str, FileEntry] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A bundle whose files were read and verified."""

    path: Path
    manifest: Manifest
    labels: list[str]
    probe_features: NDArray[np.float32]
    probe_scores: NDArray[np.float32]
    energy_scores: NDArray[np.float32] | None = None
    """Of the probe rows by the energy network, where the bundle has one."""
    graph: str = MODEL

    @property
    def model_path(self) -> Path:
        """Where the ONNX graph is."""
        return self.path / self.graph

    def energy(self) -> Bundle | None:
        """The same bundle with its energy network in the place of the model, if it has one."""
        if self.energy_scores is None:
            return None
        named = replace(self.manifest, name=f"{self.manifest.name}, energy")
        return replace(self, manifest=named, graph=ENERGY, probe_scores=self.energy_scores)


@dataclass(frozen=True, kw_only=True)
class EnergyGraph:
    """An energy network asked by gradient descent, to be compared with the model."""

    model: bytes
    probe_scores: NDArray[np.float32]


def write_bundle(
    path: Path,
    manifest: Manifest,
    *,
    model: bytes,
    labels: list[str],
    probe_features: NDArray[np.float32],
    probe_scores: NDArray[np.float32],
    energy: EnergyGraph | None = None,
) -> None:
    """Write a whole bundle beside `path`, then rename it into place: never a half-written one."""
    path = path.absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise BundleError(
            f"cannot write to {path.parent}: {error.strerror}; choose another --out"
        ) from error
    try:
        (scratch / MODEL).write_bytes(model)
        (scratch / LABELS).write_text(json.dumps(labels, ensure_ascii=False), encoding="utf-8")
        probe = {"features": probe_features, "scores": probe_scores}
        if energy is not None:
            (scratch / ENERGY).write_bytes(energy.model)
            probe["energy_scores"] = energy.probe_scores
        np.savez_compressed(scratch / PROBE, allow_pickle=False, **probe)
        entries = {file.name: _entry(file) for file in sorted(scratch.iterdir())}
        text = json.dumps(
            {**asdict(manifest), "files": {n: asdict(e) for n, e in entries.items()}}, indent=2
        )
        (scratch / MANIFEST).write_text(text + "\n", encoding="utf-8")
        scratch.chmod(0o755)
        _replace_folder(scratch, path)
    except OSError as error:
        raise BundleError(
            f"cannot write {path}: {error.strerror}; free some space or choose another --out"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def load_bundle(path: Path) -> Bundle:
    """Read and verify a bundle: schema, sizes and hashes first, contents after."""
    manifest = read_manifest(path)
    for name, entry in manifest.files.items():
        _verify(path / name, entry)
    try:
        labels = json.loads((path / LABELS).read_text(encoding="utf-8"))
        with np.load(path / PROBE, allow_pickle=False) as probe:
            bundle = Bundle(
                path=path,
                manifest=manifest,
                labels=labels,
                probe_features=probe["features"],
                probe_scores=probe["scores"],
                energy_scores=probe["energy_scores"] if ENERGY in manifest.files else None,
            )
    except (OSError, ValueError, KeyError) as error:
        raise BundleError(f"{path} cannot be read ({error}); export the model again") from error
    if len(labels) != manifest.label_count:
        raise BundleError(
            f"{path}: {LABELS} has {len(labels)} of {manifest.label_count} names; export it again"
        )
    return bundle


def read_manifest(path: Path) -> Manifest:
    """Read the manifest alone, and refuse what this version cannot serve."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise BundleError(
            f"{path} {what}: a bundle is the folder that `python -m export model.pt` writes"
        )
    try:
        raw = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BundleError(
            f"{path} is not a bundle: it has no {MANIFEST}; `python -m export model.pt` writes one"
        ) from error
    except (OSError, ValueError) as error:
        raise BundleError(
            f"{path}: {MANIFEST} cannot be read ({error}); export the model again"
        ) from error
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if schema != SCHEMA_VERSION:
        raise BundleError(
            f"{path} has bundle schema {schema}, this version reads {SCHEMA_VERSION}: export again"
        )
    return _manifest_from(raw, path)


def _manifest_from(raw: dict[str, Any], path: Path) -> Manifest:
    try:
        files = {name: FileEntry(**entry) for name, entry in raw["files"].items()}
        manifest = Manifest(
            **{
                **raw,
                "input": InputSpec(**raw["input"]),
                "thresholds": Thresholds(**raw["thresholds"]),
                "files": files,
            }
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise BundleError(
            f"{path}: {MANIFEST} is incomplete ({error}); export the model again"
        ) from error
    if set(files) - {ENERGY} != {MODEL, LABELS, PROBE}:
        # Also keeps a manifest from naming files outside its own folder.
        raise BundleError(
            f"{path}: {MANIFEST} must list just {MODEL}, {LABELS}, {PROBE} and at most {ENERGY}; "
            "export it again"
        )
    return manifest


def _entry(path: Path) -> FileEntry:
    return FileEntry(sha256=_sha256(path), bytes=path.stat().st_size)


def _verify(path: Path, entry: FileEntry) -> None:
    if not path.is_file():
        raise BundleError(f"{path} is missing: the bundle is incomplete, copy or export it again")
    size = path.stat().st_size
    if size != entry.bytes:
        raise BundleError(
            f"{path} has {size} bytes instead of {entry.bytes}: copy or export the bundle again"
        )
    if _sha256(path) != entry.sha256:
        raise BundleError(
            f"{path} was changed after its export (sha256 differs): copy or export the bundle again"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _replace_folder(new: Path, path: Path) -> None:
    # A folder cannot be renamed over a filled one, so the old one steps aside first.
    if not path.exists():
        os.rename(new, path)
        return
    if not (path / MANIFEST).is_file():
        raise BundleError(f"{path} exists and is not a bundle: remove it or choose another --out")
    aside = path.with_name(f"{new.name}.old")
    os.rename(path, aside)
    os.rename(new, path)
    shutil.rmtree(aside)
