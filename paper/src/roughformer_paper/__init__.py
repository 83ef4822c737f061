"""The Rough Transformer paper, measured: its experiments, the models it compares with, the demo.

A client of roughformer's public API, like any other package that builds on it.
"""
