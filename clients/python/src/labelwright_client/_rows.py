"""From what people hold (lists, dicts, texts, arrays, frames) to the rows of a request.

Arrays are known by their methods, not by their types: numpy, scipy and pandas need not be there.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any, Protocol

from labelwright_client._errors import InvalidArgument


class ArrayLike(Protocol):
    """A numpy array, a torch tensor, a pandas series: whatever turns itself into lists."""

    def tolist(self) -> Any: ...  # noqa: ANN401 - the depth of the lists is not in the type


class SparseLike(Protocol):
    """A scipy sparse matrix or array of any format."""

    def tocsr(self) -> Any: ...  # noqa: ANN401 - naming the type would need scipy


class FrameLike(Protocol):
    """A pandas data frame, of numbers only."""

    @property
    def iloc(self) -> Any: ...  # noqa: ANN401 - naming the type would need pandas


Rows = (
    Sequence[Sequence[float]]
    | Sequence[Mapping[int, float]]
    | Sequence[Mapping[str, float]]
    | Sequence[str]
    | Sequence[ArrayLike]
    | ArrayLike
    | SparseLike
    | FrameLike
)
JsonRow = list[float] | dict[str, float] | str

NUMBER_KINDS = "biuf"  # numpy's letters for truth values, whole numbers and floats
NPY_START = 128  # bytes before the numbers of an .npy file; more than its header ever needs
FLOAT32_MAX = 3.4028234663852886e38
EXPECTED = "expected a list of rows, each a list of numbers, an {index: value} dict or a text"


def encode_rows(rows: Rows) -> list[JsonRow]:
    """Turn rows into JSON values, all of the kind of the first; the first bad one is named.

    Raises:
        InvalidArgument: One flat row, no rows, mixed kinds, or a value that is no finite number.
    """
    if hasattr(rows, "tocsr"):
        return _sparse_rows(rows.tocsr())
    if _is_frame(rows):
        rows = _numbers_of_frame(rows)
    listed = [_unwrapped(row) for row in _row_list(rows)]
    encode = _encoder_for(listed[0])
    return [encode(row, number) for number, row in enumerate(listed)]


def array_bytes(rows: Any) -> tuple[bytes, int] | None:  # noqa: ANN401 - see the module
    """A numpy array (rows, width) or a data frame as a float32 .npy file, and how many rows it has.

    None for everything else, and for arrays that hold what float32 cannot: those go as JSON, which
    finds out what is wrong with which row. An .npy file and not the bare numbers, as only its
    header lets the server tell an array of another width from one of other rows.
    """
    rows = _numbers_of_frame(rows) if _is_frame(rows) else rows
    if not all(hasattr(rows, name) for name in ("dtype", "astype", "tobytes", "ndim")):
        return None
    if rows.dtype.kind not in NUMBER_KINDS or rows.ndim != 2 or not rows.size:
        return None
    if not float(abs(rows).max()) <= FLOAT32_MAX:  # also where it is NaN
        return None
    return _npy_header(*rows.shape) + rows.astype("<f4").tobytes(), len(rows)


def _npy_header(rows: int, width: int) -> bytes:
    # Written here, so that an array of another library than numpy will do too.
    words = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}"
    padded = words.ljust(NPY_START - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode()


def _is_frame(rows: object) -> bool:
    return hasattr(rows, "iloc") and hasattr(rows, "columns")


def _numbers_of_frame(frame: Any) -> Any:  # noqa: ANN401 - naming the types would need pandas
    for name, dtype in frame.dtypes.items():
        if dtype.kind not in NUMBER_KINDS:
            raise InvalidArgument(
                f"column {name!r} of the data frame holds no numbers: "
                "pass the columns of numbers only, or the one column of texts"
            )
    return frame.to_numpy(dtype="float64", na_value=math.nan)


def _row_list(rows: object) -> Sequence[object]:
    rows = _unwrapped(rows)
    if isinstance(rows, str | bytes | Mapping | Real):
        raise _flat(type(rows).__name__)
    if not isinstance(rows, Sequence):
        # A generator would iterate too, but only once, and retries need the rows again.
        raise InvalidArgument(
            f"{EXPECTED}, got {type(rows).__name__}: convert it first, with list()"
        )
    if not rows:
        raise InvalidArgument(f"{EXPECTED}, got no rows: send at least one")
    return rows


def _unwrapped(value: object) -> object:
    return value.tolist() if hasattr(value, "tolist") else value


def _flat(what: str) -> InvalidArgument:
    return InvalidArgument(f"{EXPECTED}, got one single row ({what}): wrap it, predict([row])")


def _encoder_for(first: object) -> Callable[[object, int], JsonRow]:
    if isinstance(first, Real):
        raise _flat("a flat list of numbers")
    if isinstance(first, str):
        return _text
    return _sparse if isinstance(first, Mapping) else _dense


def _text(row: object, number: int) -> str:
    if not isinstance(row, str):
        raise _mixed(number, "a text", row)
    try:
        row.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"row {number} is not valid Unicode ({error.reason}): decode it with the right encoding"
        ) from error
    return row


def _dense(row: object, number: int) -> list[float]:
    if not isinstance(row, Sequence) or isinstance(row, str | bytes):
        raise _mixed(number, "a list of numbers", row)
    return _finite(row, number)


def _sparse(row: object, number: int) -> dict[str, float]:
    if not isinstance(row, Mapping):
        raise _mixed(number, "an {index: value} dict", row)
    indices = [_index(key, number) for key in row]
    if len(set(indices)) != len(indices):
        raise InvalidArgument(
            f"row {number} gives one index twice, as a number and as a text: keep one of them"
        )
    return dict(zip(indices, _finite(list(row.values()), number), strict=True))


def _index(key: object, number: int) -> str:
    if isinstance(key, str):
        return key
    try:
        return str(operator.index(key))  # type: ignore[arg-type]
    except TypeError as error:
        raise InvalidArgument(
            f"row {number} has the index {key!r}: expected a column number, such as 3"
        ) from error


def _sparse_rows(matrix: Any) -> list[JsonRow]:  # noqa: ANN401 - naming the type would need scipy
    if len(matrix.shape) != 2:
        raise _flat(f"a sparse array of shape {matrix.shape}")
    if matrix.shape[0] == 0:
        raise InvalidArgument(f"{EXPECTED}, got a sparse matrix of no rows: send at least one")
    rows = csr_rows(matrix.indptr, matrix.indices, matrix.data)
    return [_sparse(row, number) for number, row in enumerate(rows)]


def csr_rows(indptr: ArrayLike, indices: Any, data: Any) -> Iterator[dict[int, float]]:  # noqa: ANN401 - arrays
    """The rows of a CSR matrix, given by its three arrays, as {column: value}."""
    for start, end in pairwise(indptr.tolist()):
        yield _summed(indices[start:end].tolist(), data[start:end].tolist())


def _summed(columns: list[int], values: list[float]) -> dict[int, float]:
    # A CSR matrix may hold one cell several times, and then means their sum.
    row: dict[int, float] = {}
    for column, value in zip(columns, values, strict=True):
        row[column] = row.get(column, 0) + value
    return row


def _finite(values: Sequence[Any], number: int) -> list[float]:
    # By type and not by value: float("1") would take texts, and a set of types is small.
    for kind in set(map(type, values)):
        if not issubclass(kind, Real):
            raise InvalidArgument(f"row {number} holds a {kind.__name__}: expected numbers only")
    try:
        floats = list(map(float, values))
    except OverflowError as error:
        raise InvalidArgument(f"row {number} holds a number too large for a float") from error
    if not all(map(math.isfinite, floats)):
        raise InvalidArgument(f"row {number} holds NaN or infinity: replace it by a finite number")
    return floats


def _mixed(number: int, expected: str, row: object) -> InvalidArgument:
    return InvalidArgument(
        f"row {number} is a {type(row).__name__}: expected {expected}, as all rows must be alike"
    )
