"""The best labels by an index over their vectors: a few cells are read in place of all labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.bundle import INDEX, Bundle, BundleError
from export.manifest import Search
from train.errors import needs_extra


class LabelIndex:
    """labels.faiss of a bundle.

    Raises:
        UserError: faiss is not installed.
        BundleError: The index cannot be read, or is not of this bundle's labels.
    """

    def __init__(self, bundle: Bundle, search: Search, *, threads: int) -> None:
        with needs_extra("ann", f"the index of {bundle.path}"):
            import faiss  # noqa: PLC0415 - an extra that other bundles do not need
        path, manifest = bundle.path / INDEX, bundle.manifest
        try:
            index: Any = faiss.read_index(str(path))
        except RuntimeError as error:
            raise BundleError(f"{path} cannot be read as an index; export it again") from error
        found = (index.ntotal, index.d)
        if found != (manifest.label_count, manifest.embedding_size):
            raise BundleError(
                f"{path} has {found[0]} vectors of {found[1]} numbers, the bundle "
                f"{manifest.label_count} of {manifest.embedding_size}; export it again"
            )
        faiss.omp_set_num_threads(threads)
        self._parameters: Any = faiss.SearchParametersIVF
        self._index, self._nprobe, self._cells = index, search.nprobe or 1, int(index.nlist)

    def search(
        self, vectors: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and labels (rows, k) of the best labels, best first; the scores are exact.

        Where the cells of a row hold fewer than k labels, more of them are searched.
        """
        nprobe = self._nprobe
        while True:
            logits, labels = self._index.search(vectors, k, params=self._parameters(nprobe=nprobe))
            if labels.min() >= 0 or nprobe >= self._cells:
                break
            nprobe = min(4 * nprobe, self._cells)
        with np.errstate(over="ignore"):  # of a hopeless label, whose score is 0
            return 1 / (1 + np.exp(-logits)), labels
