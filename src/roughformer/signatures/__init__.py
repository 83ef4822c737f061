"""The signature engine: native kernel, pure-torch twin, one dispatch (``engine``)."""
