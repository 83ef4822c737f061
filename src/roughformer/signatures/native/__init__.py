"""The native kernel: C++ sources, the generator of its straight-line parts, and its build."""
