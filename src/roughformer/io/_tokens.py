"""Blocks of delimited numbers as text -> arrays, without a Python step per number.

The block's bytes are split at its delimiters with numpy; what is left is, byte for byte, the data
buffer of an Arrow string array, which Arrow casts to floats with its own fast, correctly rounded
parser.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roughformer.errors import InputError

__all__ = ["NumberBlock", "parse_block", "to_floats"]

_COMMA, _COLON, _NEWLINE = b",:\n"
_DELIMITERS, _BLANKS = b",:\n", b" \t\r"


@dataclass(frozen=True)
class NumberBlock:
    """Numbers of a block of lines ``a,b,c:d,e,f``: rows are lines, runs are the parts between ":".

    ``numbers (n,)``; ``run_lengths (r,)`` numbers in each run; ``runs_per_line (lines,)``.
    """

    numbers: npt.NDArray[np.float64]
    run_lengths: npt.NDArray[np.int64]
    runs_per_line: npt.NDArray[np.int64]


def to_floats(tokens: pa.Array) -> npt.NDArray[np.float64]:
    """An Arrow string array -> float64; ``?`` (and any spelling of nan) is NaN."""
    missing = pc.equal(tokens, "?")
    if pc.any(missing).as_py():
        tokens = pc.if_else(missing, "nan", tokens)
    try:
        numbers = tokens.cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise InputError(
            f"expected decimal numbers, NaN or ? between the commas: {error}; correct that entry"
        ) from None
    result: npt.NDArray[np.float64] = numbers.to_numpy(zero_copy_only=False)
    return result


def parse_block(lines: list[bytes]) -> NumberBlock:
    """Parse lines such as ``1.5,?,3:4,5,6`` (no line ends, at least one line)."""
    text = _without_blanks(b"\n".join(lines) + b"\n")
    characters = np.frombuffer(text, dtype=np.uint8)
    at = np.flatnonzero(_is_delimiter(characters))
    kind = characters[at]
    # Bytes before delimiter k that are no delimiters: where token k ends in the compacted text.
    ends = np.zeros(len(at) + 1, dtype=np.int32)
    np.subtract(at, np.arange(len(at)), out=ends[1:], casting="unsafe")
    data = text.translate(None, delete=_DELIMITERS)
    tokens = pa.StringArray.from_buffers(len(at), pa.py_buffer(ends), pa.py_buffer(data))
    run_end = np.flatnonzero(kind != _COMMA)
    line_end = np.flatnonzero(kind[run_end] == _NEWLINE)
    return NumberBlock(
        to_floats(tokens), np.diff(run_end, prepend=-1), np.diff(line_end, prepend=-1)
    )


def _is_delimiter(characters: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    # Comparisons vectorise; a table look-up is five times slower.
    found: npt.NDArray[np.bool_] = characters == _COMMA
    found |= characters == _COLON
    found |= characters == _NEWLINE
    return found


def _without_blanks(text: bytes) -> bytes:
    """Remove blanks next to delimiters; a blank inside a number ("1 2") is refused, not joined."""
    if not any(blank in text for blank in (b" ", b"\t", b"\r")):
        return text
    characters = np.frombuffer(text, dtype=np.uint8)
    kept = np.flatnonzero(~np.isin(characters, list(_BLANKS)))
    gap = np.flatnonzero(np.diff(kept) > 1)
    ends_token = _is_delimiter(characters[kept[gap]])
    starts_token = _is_delimiter(characters[kept[gap + 1]])
    inside = ~ends_token & ~starts_token
    if inside.any():
        start = int(kept[gap[inside.argmax()]])
        shown = text[max(0, start - 10) : start + 15].decode("utf-8", "replace")
        raise InputError(
            f"expected a comma between numbers, got a blank in {shown!r}; put a comma there"
        )
    return text.translate(None, delete=_BLANKS)
