"""The errors a user of roughformer can meet.

Each is safe to show to a client: its text says what was expected, what arrived and what to do,
and never carries internals.
"""

__all__ = ["CapacityError", "CheckpointError", "EngineWarning", "InputError", "MissingDataError"]


class InputError(ValueError):
    """The data or an option handed in cannot be used; the text names the place and the remedy."""


class MissingDataError(FileNotFoundError):
    """A data set is not on this machine; the text says where to download it and where to put it."""


class CapacityError(MemoryError):
    """The result would not fit; raised before anything is allocated, with the ways out."""


class CheckpointError(RuntimeError):
    """A saved model or state is damaged, incomplete or of another kind."""


class EngineWarning(UserWarning):
    """The native engine cannot be used, so the slower torch engine is used."""
