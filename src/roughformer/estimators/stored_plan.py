"""What a plan is made from when the series are in a store."""

from typing import Any

from roughformer.errors import InputError
from roughformer.estimators.parts import Series
from roughformer.store import StoredSeries
from roughformer.tokens import Tokenizer

__all__ = ["planned_on"]

_MOST_SERIES = 2048  # that choices and units are taken from


def planned_on(batch: Series, changed: list[str], kind: str) -> tuple[Any, Tokenizer | None]:
    """The series in memory that a plan looks at, and the tokenizer if the store's tokens do.

    They do for RFormer unless options of tokens were ``changed``; then tokens are made of the
    series, if the store has them. In memory are all series of a batch, some of a store.
    """
    if not isinstance(batch, StoredSeries):
        return batch, None
    if batch.tokenizer is not None and kind == "rformer" and not changed:
        return None, batch.tokenizer
    if not batch.holds_series:
        place = batch.cache.place
        if kind != "rformer":
            raise InputError(
                f"the model {kind!r} reads the samples, and the store {place} holds tokens only; "
                "make it with roughformer features --series"
            )
        raise InputError(
            f"the tokens of the store {place} are made already, so {', '.join(changed)} cannot be "
            "chosen; leave that out, or make the store with roughformer features --series"
        )
    return batch.sample(_MOST_SERIES)[:], None
