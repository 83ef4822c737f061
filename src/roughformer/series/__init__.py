"""Ragged, timestamped, incomplete series: the one door through which data enter the package."""

from roughformer.series.batch import SeriesBatch, UnobservedWarning

__all__ = ["SeriesBatch", "UnobservedWarning"]
