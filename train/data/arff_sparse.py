"""Sparse ARFF rows, `{index value,index value}`, parsed in bulk, without a loop over entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from train.data.arff_syntax import ArffFile, Attribute, unquote
from train.data.columns import zero_one_codes
from train.data.tokens import Block, Tokens, find_tokens
from train.errors import DataError

_SPACE = b" \t\r\n"
_OPEN, _COMMA, _CLOSE = 1, 2, 3
_KIND = bytes({ord("{"): _OPEN, ord(","): _COMMA, ord("}"): _CLOSE}.get(c, 0) for c in range(256))


@dataclass(frozen=True)
class Entries:
    """What the rows list: CSR over all attributes, column indices ascending in each row."""

    indptr: np.ndarray
    columns: np.ndarray
    values: np.ndarray


def read_entries(arff: ArffFile, is_label: np.ndarray) -> Entries:
    """Entries of a sparse file, checked: the grammar, and indices in range, ascending, unrepeated.

    What a row leaves out is the first declared value of the attribute. Hence only numeric
    attributes and two-valued ones that declare their 0 first can be read. Labels are 0 or 1.
    """
    codes = [_codes_of(arff, attribute) for attribute in arff.attributes]
    columns_of = _Columns(
        names=[attribute.name for attribute in arff.attributes],
        codes=codes,
        is_word=np.array([not code.keys() <= {"0", "1"} for code in codes]),
        is_zero_one=is_label | np.array([bool(code) for code in codes]),
    )
    parts = [_read_chunk(chunk, columns_of) for chunk in arff.rows.chunks(b"{")]
    lengths = np.concatenate([np.diff(part.indptr) for part in parts])
    return Entries(
        indptr=np.concatenate([[0], np.cumsum(lengths)]),
        columns=np.concatenate([part.columns for part in parts]),
        values=np.concatenate([part.values for part in parts]),
    )


@dataclass(frozen=True)
class _Columns:
    """What the header says of each attribute: name, meaning of its values, and their kind."""

    names: Sequence[str]
    codes: Sequence[Mapping[str, int]]
    is_word: np.ndarray
    is_zero_one: np.ndarray


def _read_chunk(chunk: Block, header: _Columns) -> Entries:
    tokens = find_tokens(chunk, _SPACE + b"{},")
    opens = _check_grammar(chunk, tokens)
    columns = tokens.select(slice(0, None, 2)).integers()
    indptr = np.append(np.searchsorted(tokens.starts[0::2], opens), len(columns))
    n_attributes = len(header.names)
    _require(tokens, columns < n_attributes, f"the index must be below {n_attributes}")
    is_ascending = np.diff(columns, prepend=-1) > 0
    is_ascending[indptr[:-1][np.diff(indptr) > 0]] = True  # the first of a row follows nothing
    _require(tokens, is_ascending, "indices must ascend, none twice,")
    return Entries(indptr, columns, _read_values(header, columns, tokens.select(slice(1, None, 2))))


def _require(tokens: Tokens, is_good: np.ndarray, rule: str) -> None:
    if not is_good.all():
        guilty = 2 * int(np.flatnonzero(~is_good)[0])
        raise tokens.error(guilty, f"{rule} in a sparse row, got {tokens.word(guilty)}")


def _check_grammar(rows: Block, tokens: Tokens) -> np.ndarray:
    """Positions of the opening braces, once the text is known to be rows and nothing else.

    Tokens and the marks { , } are put in the order of the text. Between two marks that follow each
    other stand two tokens (`{ i v ,`, `, i v }` and so on) or none (`{ }`, and `} {` between rows).
    """
    kinds = np.frombuffer(rows.text.translate(_KIND), dtype=np.uint8)
    is_event = kinds > 0
    is_event[tokens.starts] = True
    events = np.flatnonzero(is_event)
    marks = np.flatnonzero(kinds[events])
    codes = kinds[events[marks]]
    between = np.diff(marks) - 1
    left, right = codes[:-1], codes[1:]
    is_entry = (between == 2) & (left != _CLOSE) & (right != _OPEN)
    is_empty = (between == 0) & (left + right == _OPEN + _CLOSE) & (left != right)
    bad = np.flatnonzero(~(is_entry | is_empty))
    if len(bad) or marks[0] != 0 or codes[-1] != _CLOSE or marks[-1] != len(events) - 1:
        position = events[marks[bad[0]] + 1] if len(bad) else events[-1]
        raise rows.error(position, "a sparse row must read {index value,index value} to its end")
    opens: np.ndarray = events[marks[codes == _OPEN]]
    return opens


def _read_values(header: _Columns, columns: np.ndarray, words: Tokens) -> np.ndarray:
    in_words = header.is_word[columns]
    if in_words.any():
        values = np.empty(len(columns))
        values[~in_words] = words.select(~in_words).numbers()
        for entry in np.flatnonzero(in_words):
            word = unquote(words.word(int(entry)))
            values[entry] = header.codes[columns[entry]].get(word, np.nan)
    else:
        values = words.numbers()
    bad = np.flatnonzero(header.is_zero_one[columns] & (values != 0) & (values != 1))
    if len(bad):
        column, word = columns[bad[0]], words.word(int(bad[0]))
        allowed = " or ".join(header.codes[column]) or "0 or 1"
        raise words.error(
            int(bad[0]), f"attribute {header.names[column]!r} must be {allowed}, got {word!r}"
        )
    return values


def _codes_of(arff: ArffFile, attribute: Attribute) -> Mapping[str, int]:
    """Meaning of the values of a two-valued attribute; empty for a numeric one."""
    if attribute.kind == "numeric":
        return {}
    codes = zero_one_codes(attribute.values)
    if codes is None or codes[attribute.values[0]] != 0:
        raise DataError(
            f"{arff.path}: attribute {attribute.name!r} of a sparse file must be numeric or "
            f"{{0,1}} with 0 first, got {{{','.join(attribute.values[:5])}}}: write a dense file"
        )
    return codes
