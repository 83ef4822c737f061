"""The signature engine: native kernel, torch engine, one dispatch (``engine``)."""
