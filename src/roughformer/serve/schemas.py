"""What the OpenAPI page tells of bodies and answers. Bodies are read by hand, for speed and for
errors with a place, so FastAPI does not know them by itself.
"""

from typing import Any

__all__ = ["ERRORS", "OPEN", "PREDICT", "PUSH", "SNAPSHOT"]

_NUMBERS: dict[str, Any] = {"type": "array", "items": {"type": "number"}}
_VALUES: dict[str, Any] = {
    "type": "array",
    "items": {"type": "array", "items": {"type": ["number", "null"]}},
    "description": "A row for each time, a number or null (not observed) for each channel.",
}
_STATIC: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {"type": ["number", "null"]},
    "description": "Static covariates of the model by name.",
}
_ID: dict[str, Any] = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}
_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}


def _object(properties: dict[str, Any], required: list[str], example: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required}
    return {"schema": schema | {"additionalProperties": False}, "example": example}


def _body(content: dict[str, Any], required: bool = True) -> dict[str, Any]:
    return {"requestBody": {"required": required, "content": content}}


_SERIES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "times": _NUMBERS,
        "values": _VALUES,
        "static": _STATIC,
        "id": {"type": ["string", "integer"]},
    },
    "required": ["times", "values"],
}
PREDICT = _body(
    {
        "application/json": _object(
            {
                "series": {"type": "array", "items": _SERIES},
                "channels": {"type": "array", "items": {"type": "string"}},
            },
            ["series"],
            {"series": [{"times": [0, 0.5, 1.25], "values": [[1.0], [None], [1.5]]}]},
        ),
        "application/vnd.apache.arrow.stream": _BINARY,
        "application/vnd.apache.parquet": _BINARY,
    }
)
OPEN = _body(
    {"application/json": _object({"id": _ID, "static": _STATIC}, [], {"id": "bed-7"})}, False
)
PUSH = _body(
    {
        "application/json": _object(
            {"times": _NUMBERS, "values": _VALUES},
            ["times", "values"],
            {"times": [0.0, 0.008], "values": [[0.1], [0.12]]},
        )
    }
)
SNAPSHOT = _body({"application/octet-stream": _BINARY})

_ERROR: dict[str, Any] = {
    "application/json": {
        "schema": {
            "type": "object",
            "properties": {
                "error": {
                    "type": "object",
                    "properties": {
                        "message": {"type": "string"},
                        "position": {"type": ["object", "null"]},
                    },
                }
            },
        }
    }
}
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "Something in the request is wrong; the message says where.",
          "content": _ERROR},
    503: {"description": "Too much is waiting, or the service is stopping; try again.",
          "content": _ERROR},
}  # fmt: skip
