"""One chunk: its rows are read, scored, and their labels written beside and renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from export.bundle import BundleError, load_bundle
from serve.api import Limits
from serve.inputs import DenseRows, Rows, SparseRows, TextRows
from serve.predictor import OnnxPredictor, Scored
from serve.score.opening import InputFile
from serve.score.plan import Chunk, Job
from serve.score.sources import Wanted, wire_of
from train.errors import UserError

BATCH_ROWS = 128
"""In one call of the model: enough that calls cost nothing, few enough to stay in the caches."""

Ranking = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""How many labels each row has (rows,), then the labels and their scores, row after row."""


class Scorer:
    """A loaded bundle, and the input that was read last."""

    def __init__(self, job: Job) -> None:
        bundle = load_bundle(job.bundle)
        if bundle.manifest.version != job.version:
            raise BundleError(
                f"{job.bundle} is version {bundle.manifest.version} here, and the job is for "
                f"{job.version}: give every machine the same bundle"
            )
        wire = wire_of(bundle, job.chunk_rows)
        self._job = job
        self._limits = job.limits(bundle, wire)
        self._wanted = Wanted.by(bundle, wire, job.text_column)
        self._predictor = OnnxPredictor(bundle, threads=1, max_batch_rows=BATCH_ROWS)
        self._labels = pa.array(bundle.labels, pa.string())
        self._input: InputFile | None = None

    def write(self, chunk: Chunk) -> None:
        """Score a chunk into its file."""
        rankings = [
            ranked(
                self._predictor.run(batch, self._limits.k, with_scores=self._limits.needs_scores),
                self._limits,
            )
            for batch in batches(self._rows(chunk), BATCH_ROWS)
        ]
        counts, labels, scores = map(np.concatenate, zip(*rankings, strict=True))
        table = self._table(chunk.span.start, (counts, labels, scores))
        output = self._job.output(chunk)
        draft = output.with_name(f".{output.name}.{os.getpid()}")
        WRITERS[self._job.format](table, draft)
        draft.replace(output)

    def _rows(self, chunk: Chunk) -> Rows:
        path = self._job.inputs[chunk.file]
        if self._input is None or self._input.path != path:
            self._input = InputFile(path, self._wanted)
        return self._input.read(chunk.span)

    def _table(self, start: int, ranking: Ranking) -> pa.Table:
        counts, labels, scores = ranking
        ends = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        names = self._labels.take(pa.array(labels))
        return pa.table(
            {
                "row": np.arange(start, start + len(counts)),
                "labels": pa.ListArray.from_arrays(ends, names),
                "scores": pa.ListArray.from_arrays(ends, pa.array(scores, pa.float32())),
            }
        )


def batches(rows: Rows, size: int) -> Iterator[Rows]:
    """The rows of a chunk in calls of the model."""
    stored = np.cumsum([0, *rows.counts]) if isinstance(rows, SparseRows) else None
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        if isinstance(rows, DenseRows):
            yield DenseRows(rows.features[part])
        elif isinstance(rows, TextRows):
            yield TextRows(rows.texts[part])
        else:
            assert isinstance(rows, SparseRows)  # noqa: S101 - jobs over words are refused
            assert stored is not None  # noqa: S101 - see above
            values = slice(stored[start], stored[min(start + size, len(rows))])
            yield SparseRows(rows.counts[part], rows.columns[values], rows.values[values])


def ranked(scored: Scored, limits: Limits) -> Ranking:
    """The labels to write, best first; equal scores in the order of their columns."""
    if limits.needs_scores:
        assert scored.scores is not None and limits.threshold is not None  # noqa: S101, PT018
        rows, labels = np.nonzero(scored.scores >= limits.threshold)
        scores = scored.scores[rows, labels]
        order = np.lexsort((labels, -scores, rows))
        counts = np.bincount(rows, minlength=len(scored.scores))
        if limits.top_k is not None:
            places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
            order = order[places < limits.top_k]
            counts = np.minimum(counts, limits.top_k)
        return counts, labels[order], scores[order]
    if limits.threshold is None:
        counts = np.full(len(scored.top_labels), limits.k)
        return counts, scored.top_labels.reshape(-1), scored.top_scores.reshape(-1)
    is_kept = scored.top_scores >= limits.threshold
    return is_kept.sum(axis=1), scored.top_labels[is_kept], scored.top_scores[is_kept]


def _write_parquet(table: pa.Table, path: Path) -> None:
    with path.open("wb") as file:
        # Labels come again and again; scores and numbers of rows hardly do.
        pq.write_table(table, file, use_dictionary=["labels.list.element"])
        _to_disk(file.fileno())


def _write_jsonl(table: pa.Table, path: Path) -> None:
    labels, scores = table["labels"].combine_chunks(), table["scores"].combine_chunks()
    numbers = scores.values.to_numpy()
    ends = scores.offsets.to_numpy()
    with path.open("wb") as file:
        for place, (row, names) in enumerate(
            zip(table["row"].to_pylist(), labels.to_pylist(), strict=True)
        ):
            # float32 as an array, with as few digits as tell it from its neighbours.
            best = numbers[ends[place] : ends[place + 1]]
            line = {"row": row, "labels": names, "scores": best}
            file.write(
                orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
            )
        file.flush()
        _to_disk(file.fileno())


def _to_disk(number: int) -> None:
    """Before the renaming: a machine that loses power must not be left with an empty file."""
    os.fsync(number)


WRITERS = {"parquet": _write_parquet, "jsonl": _write_jsonl}


@lru_cache(maxsize=1)
def _scorer(job: Job) -> Scorer:
    return Scorer(job)


def score_chunk(job: Job, chunk: Chunk) -> UserError | OSError | None:
    """Score a chunk in this process, which loads the bundle once; return what the user can mend."""
    try:
        _scorer(job).write(chunk)
    except (UserError, OSError) as error:
        return error
    return None
