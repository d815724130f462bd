"""Networks that keep tables made from the training rows, of sizes known only after fitting."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from train.batches import Rows
from train.errors import DataError

LARGEST_TABLE = 1 << 30
"""Bytes of one table: a file of ONNX holds 2 GiB in all."""
COPY_BATCH = 1024


class StoredTables(nn.Module):
    """A network whose buffers take the sizes and types they were saved with.

    So `predictor(config, shape)` may build it with small empty tables, and a checkpoint fills it.
    """

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        *args: Any,  # noqa: ANN401 - passed on
    ) -> None:
        for name, buffer in self.named_buffers(recurse=False):
            saved = state_dict.get(prefix + name)
            if isinstance(saved, Tensor):
                self.register_buffer(name, saved.new_empty(saved.shape, device=buffer.device))
        super()._load_from_state_dict(state_dict, prefix, *args)


def check_size(n_rows: int, row_bytes: int) -> None:
    """Refuse a table that would be too large to keep."""
    size = n_rows * row_bytes
    if size > LARGEST_TABLE:
        raise DataError(
            f"this method keeps training rows, and {n_rows} of them, dense, are "
            f"{size / 2**30:.1f} GiB where {LARGEST_TABLE / 2**30:.1f} GiB is the limit: "
            "take fewer rows with --fraction, or another method"
        )


def dense_table(rows: Rows, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """All rows as one dense matrix to keep, (rows, width), or a refusal if it would be too large.

    Filled in batches: sparse rows are never dense twice over.
    """
    check_size(len(rows), rows.width * dtype.itemsize)
    table = torch.empty(len(rows), rows.width, dtype=dtype, device=device)
    for index in torch.arange(len(rows), device=device).split(COPY_BATCH):
        table[index] = rows.take(index).to(dtype)
    return table
