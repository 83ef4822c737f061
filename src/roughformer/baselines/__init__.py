"""Models that RFormer is compared with; same calls, same training, same estimators."""

from roughformer.baselines.transformer import SampleEncoder, Transformer

__all__ = ["SampleEncoder", "Transformer"]
