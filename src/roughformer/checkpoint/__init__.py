"""Saved models: a directory of ``config.json``, ``*.safetensors`` and ``manifest.json``.

The manifest has the size and SHA-256 of every other file, and of itself, so that a flipped bit
anywhere is an error and not a slightly different model. Nothing is ever unpickled. A save killed
at any moment leaves the complete old checkpoint or the complete new one (``roughformer.atomic``).
The same input gives the same bytes: there are no dates or names of machines inside.
"""

from roughformer.checkpoint._load import Checkpoint, load_checkpoint
from roughformer.checkpoint._save import save_checkpoint

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint"]
