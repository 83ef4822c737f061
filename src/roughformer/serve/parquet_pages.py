"""What a Parquet file really unpacks to: the sum over its pages, whose headers pyarrow goes by.

The sizes in the footer are not looked at when pages are unpacked, so a client may write any there.
Headers are structs of Thrift's compact protocol.
"""

from typing import Any

__all__ = ["unpacked_size"]

_MOST_FOOTER = 1 << 20  # bytes
_MOST_PAGES = 10_000  # of 20,000 rows each, by default
_DEEP = 16  # structs within structs
_ROW_GROUPS, _COLUMNS, _CHUNK = 4, 1, 3  # numbers of fields
_PACKED, _DATA_AT, _DICTIONARY_AT = 7, 9, 11  # of a column chunk
_PAGE_UNPACKED, _PAGE_PACKED, _PAGE_KINDS = 2, 3, (5, 7, 8)  # of a page


def unpacked_size(data: bytes, max_rows: int) -> int:
    """Bytes of all pages when unpacked; an error if the file cannot be followed (a number where a
    struct should be, say), or a page claims more than ``max_rows`` values.
    """
    length = int.from_bytes(data[-8:-4], "little")
    if length > min(_MOST_FOOTER, len(data) - 8):
        raise ValueError("the footer is too long")
    footer, _ = _struct(data[-8 - length : -8], 0)
    size = pages = 0
    for group in footer.get(_ROW_GROUPS, ()):
        for column in group.get(_COLUMNS, ()):
            chunk = column[_CHUNK]
            # A dictionary comes first, where there is one.
            at = chunk[_DATA_AT]
            if 0 < chunk.get(_DICTIONARY_AT, 0) < at:
                at = chunk[_DICTIONARY_AT]
            end = at + chunk[_PACKED]
            if not 0 < at <= end <= len(data):
                raise ValueError("a column lies outside the file")
            while at < end:
                page, at = _struct(data, at)
                packed, unpacked = page[_PAGE_PACKED], page[_PAGE_UNPACKED]
                values = [page[kind].get(1, 0) for kind in _PAGE_KINDS if kind in page]
                pages += 1
                if packed < 0 or unpacked < 0 or pages > _MOST_PAGES:
                    raise ValueError("it has too many pages, or pages without a size")
                if not all(0 <= count <= max_rows for count in values):
                    raise ValueError("a page claims more values than a request may have")
                at, size = at + packed, size + unpacked
    return size


def _struct(data: bytes, at: int, deep: int = 0) -> tuple[dict[int, Any], int]:
    """Fields by number, and where the struct ends."""
    if deep > _DEEP:
        raise ValueError("structs are nested too deeply")
    found: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        kind = head & 15
        if kind in (1, 2):  # the kind is the value
            found[number] = kind == 1
        else:
            found[number], at = _value(data, at, kind, deep)
    return found, at + 1


def _value(data: bytes, at: int, kind: int, deep: int) -> tuple[Any, int]:
    if kind in (1, 2, 3):
        return data[at], at + 1
    if kind in (4, 5, 6):
        return _integer(data, at)
    if kind == 7:
        return None, at + 8
    if kind == 8:
        size, at = _varint(data, at)
        return None, at + size
    if kind in (9, 10):
        head = data[at]
        size, at = (head >> 4, at + 1) if head >> 4 < 15 else _varint(data, at + 1)
        if size > len(data):
            raise ValueError("a list is longer than the file")
        items = []
        for _ in range(size):
            item, at = _value(data, at, head & 15, deep + 1)
            items.append(item)
        return items, at
    if kind == 12:
        return _struct(data, at, deep + 1)
    raise ValueError("a header is damaged")  # Parquet has no maps


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number is too long")


def _integer(data: bytes, at: int) -> tuple[int, int]:
    """Of either sign."""
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at
