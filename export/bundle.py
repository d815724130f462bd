"""The bundle: the folder that `python -m export` writes and `python -m serve` reads. No torch here.

model.bundle/
  manifest.json     what the model is, expects and scores; sha256 and size of each file
  model.onnx        inputs by the kind of rows, see `GRAPH_INPUTS`, and `k` () int64;
                    outputs `scores` (rows, labels), `top_scores` and `top_labels` (rows, k)
  labels.json       label names, one for each column
  probe.npz         real rows, named as the graph's inputs, with the scores torch gave (`scores`)
  README.md         the model card, for people
and where the model has them:
  model.onnx.data   the large arrays of model.onnx
  search.onnx       model.onnx without `scores`, for a large label table
  encoder.onnx      the inputs of model.onnx but `k`, output `embedding` (rows, size)
  thresholds.npy    one threshold a label, where there are too many for the manifest
  tokenizer.json, encoder.json    what turns text into the graph's inputs
  labels.faiss      the label vectors as an index
  manifest.sig      what `python -m export sign` wrote
  energy.onnx       only with `--with-energy`: an energy network asked by gradient descent, inputs
                    and outputs as in model.onnx; its scores are `energy_scores` in probe.npz
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.card import card_of
from export.external_data import uses_of
from export.feeds import GRAPH_INPUTS, Feed
from export.manifest import (
    SCHEMA_VERSION,
    FileEntry,
    ImageSize,
    InputSpec,
    LabelTable,
    Manifest,
    Origin,
    Search,
    Thresholds,
)
from export.signature import check_signature
from train.archives import read_arrays
from train.errors import UserError

MANIFEST, MODEL, LABELS, PROBE = "manifest.json", "model.onnx", "labels.json", "probe.npz"
CARD = "README.md"
ENERGY, ENCODER, SEARCH = "energy.onnx", "encoder.onnx", "search.onnx"
THRESHOLDS = "thresholds.npy"
TOKENIZER, WORDS, INDEX = "tokenizer.json", "encoder.json", "labels.faiss"
DATA_SUFFIX = ".data"
GRAPHS = (MODEL, ENCODER, ENERGY, SEARCH)
REQUIRED = frozenset({MODEL, LABELS, PROBE})
OPTIONAL = frozenset(
    {
        *GRAPHS,
        *(graph + DATA_SUFFIX for graph in GRAPHS),
        *(CARD, THRESHOLDS, TOKENIZER, WORDS, INDEX),
    }
)
PROBE_TOLERANCE = 1e-5
INT8_TOLERANCE = 0.1
"""Of graphs in 8 bits: activations share the scale of their batch, and machines round otherwise."""
MOST_JSON_BYTES = 64 * 2**20
"""Of the manifest, and of what encodes text: the largest vocabularies in use take half of it."""
DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Operators that ONNX Runtime brings along; those of others would be code from elsewhere."""
MOST_THRESHOLDS_IN_MANIFEST = 10_000
"""Beyond it a file of their own is read a hundred times faster."""


class BundleError(UserError):
    """A folder that is no bundle, is damaged, or was written by another version."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A bundle whose files were read and verified."""

    path: Path
    manifest: Manifest
    labels: list[str]
    per_label: NDArray[np.float32]
    """Thresholds, (labels,)."""
    probe: Feed
    probe_scores: NDArray[np.float32]
    probe_texts: list[Any] | None = None
    energy_scores: NDArray[np.float32] | None = None
    """Of the probe rows by the energy network, where the bundle has one."""
    graph: str = MODEL

    @property
    def model_path(self) -> Path:
        """Where the ONNX graph is."""
        return self.path / self.graph

    def has(self, name: str) -> bool:
        """Whether that file is part of the bundle."""
        return name in self.manifest.files

    def energy(self) -> Bundle | None:
        """The same bundle with its energy network in the place of the model, if it has one."""
        if self.energy_scores is None:
            return None
        named = replace(self.manifest, name=f"{self.manifest.name}, energy", search=None)
        return replace(self, manifest=named, graph=ENERGY, probe_scores=self.energy_scores)

    def label_vectors(self) -> NDArray[np.float32] | None:
        """The label table, (labels, size), mapped and not read; None where it is no file."""
        table = self.manifest.label_table
        if table is None:
            return None
        shape = (self.manifest.label_count, table.size)
        mapped = np.memmap(
            self.path / (MODEL + DATA_SUFFIX),
            dtype=np.float32,
            mode="r",
            offset=table.offset,
            shape=shape if table.by_label else shape[::-1],
        )
        return mapped if table.by_label else mapped.T


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a bundle holds beside the files that are put into its folder as they are."""

    labels: Sequence[str]
    probe: Feed
    probe_scores: NDArray[np.float32]
    probe_texts: Sequence[Any] | None = None
    energy_scores: NDArray[np.float32] | None = None


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Give a folder to write a bundle into, then rename it to `path`: never a half-written one.

    The folder must have been finished by `write_bundle` when the block ends.
    """
    path = path.absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise BundleError(
            f"cannot write to {path.parent}: {error.strerror}; choose another --out"
        ) from error
    try:
        yield scratch
        scratch.chmod(0o755)
        _replace_folder(scratch, path)
    except OSError as error:
        raise BundleError(
            f"cannot write {path}: {error.strerror}; free some space or choose another --out"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_bundle(folder: Path, manifest: Manifest, contents: Contents) -> Manifest:
    """Add to a folder with graphs all that makes it a bundle; return the manifest as written."""
    (folder / LABELS).write_text(json.dumps(contents.labels, ensure_ascii=False), encoding="utf-8")
    probe = {**contents.probe, "scores": contents.probe_scores}
    if contents.probe_texts is not None:
        # Not as an array of texts, which would drop zeros at their ends.
        probe["texts"] = np.frombuffer(json.dumps(contents.probe_texts).encode(), np.uint8)
    if contents.energy_scores is not None:
        probe["energy_scores"] = contents.energy_scores
    np.savez_compressed(folder / PROBE, allow_pickle=False, **probe)
    thresholds = manifest.thresholds
    if thresholds.per_label and len(thresholds.per_label) > MOST_THRESHOLDS_IN_MANIFEST:
        np.save(folder / THRESHOLDS, np.array(thresholds.per_label, np.float32))
        thresholds = replace(thresholds, per_label=None)
    entries = {file.name: _entry(file) for file in sorted(folder.iterdir())}
    version = _version(entries)
    manifest = replace(manifest, thresholds=thresholds, version=version)
    (folder / CARD).write_text(card_of(manifest, contents.labels), encoding="utf-8")
    manifest = replace(manifest, files={**entries, CARD: _entry(folder / CARD)})
    text = json.dumps(asdict(manifest), indent=2)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    return manifest


def load_bundle(path: Path, trusted: Path | None = None) -> Bundle:
    """Read and verify a bundle: signature, schema, sizes and hashes first, contents after.

    `trusted` is a file of public keys, one of which must have signed the bundle.
    """
    manifest = read_manifest(path, trusted)
    for name, entry in manifest.files.items():
        _verify(path / name, entry)
    try:
        for name in GRAPHS:
            if name in manifest.files:
                _check_graph(path / name, manifest)
        labels = json.loads((path / LABELS).read_text(encoding="utf-8"))
        bundle = _bundle(path, manifest, labels)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BundleError(f"{path} cannot be read ({error}); export the model again") from error
    if len(labels) != manifest.label_count:
        raise BundleError(
            f"{path}: {LABELS} has {len(labels)} of {manifest.label_count} names; export it again"
        )
    if bundle.per_label.shape != (len(labels),):
        raise BundleError(
            f"{path} has {bundle.per_label.size} thresholds for {len(labels)} labels; "
            "export it again"
        )
    return bundle


def _bundle(path: Path, manifest: Manifest, labels: list[str]) -> Bundle:
    arrays = read_arrays(path / PROBE)
    per_label: Any = manifest.thresholds.per_label
    if per_label is None:
        # Mapped, as that compares what it claims with what it has.
        per_label = np.array(np.load(path / THRESHOLDS, mmap_mode="r", allow_pickle=False))
    texts = arrays.get("texts")
    return Bundle(
        path=path,
        manifest=manifest,
        labels=labels,
        per_label=np.asarray(per_label, dtype=np.float32),
        probe={name: arrays[name] for name in GRAPH_INPUTS[manifest.input.graph_kind]},
        probe_scores=arrays["scores"],
        probe_texts=None if texts is None else json.loads(texts.tobytes()),
        energy_scores=arrays["energy_scores"] if ENERGY in manifest.files else None,
    )


def _check_graph(graph: Path, manifest: Manifest) -> None:
    """Refuse a graph that would read a file which is not this bundle's, or call other code."""
    allowed = {name + DATA_SUFFIX for name in GRAPHS} & set(manifest.files)
    uses = uses_of(graph)
    for domain in uses.domains - DOMAINS:
        raise BundleError(
            f"{graph} has operators of {domain[:80]!r}, and only those of ONNX and ONNX Runtime "
            "are run: export the model again"
        )
    for location in uses.locations:
        if location not in allowed:
            raise BundleError(
                f"{graph} reads its numbers from {location[:80]!r}, which is not in the bundle's "
                "manifest: export the model again"
            )


def read_manifest(path: Path, trusted: Path | None = None) -> Manifest:
    """Read the manifest alone, and refuse what this version cannot serve."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise BundleError(
            f"{path} {what}: a bundle is the folder that `python -m export model.pt` writes"
        )
    try:
        _check_inside(path / MANIFEST)
        content = (path / MANIFEST).read_bytes()
        if trusted is not None:
            check_signature(path, content, trusted)
        raw = json.loads(content.decode("utf-8"))
    except FileNotFoundError as error:
        raise BundleError(
            f"{path} is not a bundle: it has no {MANIFEST}; `python -m export model.pt` writes one"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
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
                "input": InputSpec(
                    **{**raw["input"], "image": _optional(ImageSize, raw["input"].get("image"))}
                ),
                "thresholds": Thresholds(**raw["thresholds"]),
                "label_table": _optional(LabelTable, raw.get("label_table")),
                "search": _optional(Search, raw.get("search")),
                "origin": _optional(Origin, raw.get("origin")),
                "files": files,
            }
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise BundleError(
            f"{path}: {MANIFEST} is incomplete ({error}); export the model again"
        ) from error
    if not REQUIRED <= set(files) <= REQUIRED | OPTIONAL:
        # Also keeps a manifest from naming files outside its own folder.
        raise BundleError(
            f"{path}: {MANIFEST} must list {', '.join(sorted(REQUIRED))} and nothing unknown; "
            "export it again"
        )
    _check_claims(path, manifest)
    if manifest.input.graph_kind not in GRAPH_INPUTS:
        raise BundleError(
            f"{path} takes {manifest.input.kind!r} input, which this version does not know: "
            "serve it with a newer version"
        )
    return manifest


def _check_claims(path: Path, manifest: Manifest) -> None:
    """Refuse values of other types, and a label table that is larger than its file."""
    texts = (manifest.name, manifest.version, manifest.method, manifest.task, manifest.dataset)
    numbers = (manifest.label_count, manifest.input.width or 0, manifest.embedding_size or 0)
    if not all(type(text) is str for text in texts) or not all(map(_is_count, numbers)):
        raise BundleError(
            f"{path}: {MANIFEST} must have texts as names and whole numbers as sizes; export again"
        )
    table = manifest.label_table
    if table is None:
        return
    data = manifest.files.get(MODEL + DATA_SUFFIX)
    are_counts = _is_count(table.offset) and _is_count(table.size)
    size = table.offset + 4 * table.size * manifest.label_count if are_counts else math.inf
    if data is None or size > data.bytes:
        raise BundleError(
            f"{path}: {MANIFEST} claims a label table that is larger than its file; export again"
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _optional(kind: Any, raw: dict[str, Any] | None) -> Any:  # noqa: ANN401 - what `kind` makes
    return None if raw is None else kind(**raw)


def _version(entries: Mapping[str, FileEntry]) -> str:
    """The same weights have the same version, wherever they lie."""
    hashes = [entries[name].sha256 for name in (MODEL, MODEL + DATA_SUFFIX) if name in entries]
    if len(hashes) == 1:
        return hashes[0][:12]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:12]


def _entry(path: Path) -> FileEntry:
    return FileEntry(sha256=_sha256(path), bytes=path.stat().st_size)


def _check_inside(path: Path) -> None:
    """Refuse a link that leads out of the bundle, and JSON of a size that no bundle has."""
    if path.is_symlink() and path.resolve().parent != path.parent.resolve():
        raise BundleError(
            f"{path} is a link to a file outside the bundle: copy the file to its place"
        )
    is_json = path.name in (MANIFEST, TOKENIZER, WORDS)
    if is_json and path.exists() and path.stat().st_size > MOST_JSON_BYTES:
        raise BundleError(
            f"{path} has {path.stat().st_size} bytes, at most {MOST_JSON_BYTES} are read: "
            "export the model with a smaller vocabulary"
        )


def _verify(path: Path, entry: FileEntry) -> None:
    _check_inside(path)
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
