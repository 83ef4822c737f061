"""Models as modules of plain torch operations: whole padded series, or one step of a stream."""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from roughformer.errors import InputError
from roughformer.inference import Predictor
from roughformer.model import (
    Ensemble,
    RFormer,
    SignatureEnsemble,
    TempoFormer,
)
from roughformer.model import why_no_step as why_no_windows
from roughformer.signatures import number, observed
from roughformer.tokens import Piece, State, TokenStep, encoded_static, per_stream

MAX_WINDOWS = 1024  # as Stream


class Exportable(nn.Module):
    """A module whose ``inputs`` and ``outputs`` have names; ``dynamic`` gives the axes of each
    input that may have any size, by the name of the size.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dynamic: dict[str, dict[int, str]]

    def name_inputs(self, names: tuple[str, ...], length: str, batch: str = "batch") -> None:
        """Name the inputs; ``values`` and ``times`` also have an axis of any ``length``."""
        self.inputs = names
        self.dynamic = {name: {0: batch} for name in names}
        self.dynamic["values"][1] = self.dynamic["times"][1] = length


class Graph(Exportable):
    """What ``Predictor`` says of series, for padded batches.

    Inputs: ``values (B, L, C)`` with NaN = not observed, ``times (B, L)``, ``lengths (B,)`` and, if
    the model takes them, ``static (B, S)``; what is behind the length of a series is ignored.
    Outputs, in the order of ``outputs``: ``probabilities (B, K)``, or ``point (B, m)`` and, as the
    model tells them, ``deviation (B, m)`` or ``quantiles (B, m, q)``. A causal model says the same
    of all its windows: ``window_probabilities (B, W, K)`` ..., with ``window_end (B, W)``, their
    ends in the unit of the times, and ``window_mask (B, W)``, True = real.
    """

    def __init__(self, predictor: Predictor) -> None:
        """``InputError`` for kinds of models that no graph can be made of."""
        super().__init__()
        first = predictor.members[0]
        if not isinstance(first, RFormer | TempoFormer | SignatureEnsemble):
            raise InputError(
                f"a {type(first).__name__} cannot be exported; RFormer, TempoFormer (RateRegressor)"
                " and the default ensemble can"
            )
        self.predictor, self.encoder = predictor, predictor.encoder
        self.config = predictor.outputs
        self.model = _frozen(predictor.model)
        self.static_names = predictor.static_names
        static = ("static",) if self.static_names else ()
        self.name_inputs(("values", "times", "lengths", *static), "length")
        names = output_names(predictor)
        windows = (*(f"window_{name}" for name in names), "window_end", "window_mask")
        self.outputs = (*names, *windows) if self.config.causal else names

    def forward(
        self, values: Tensor, times: Tensor, lengths: Tensor, static: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """See the class."""
        data = observed(values, times, lengths)
        inputs, ends = self.encoder.padded(data, static)
        output = self.model(**inputs)
        if not self.config.causal:
            return tuple(self.predictor.answers(output).values())
        assert ends is not None
        mask = inputs.get("mask")
        mask = torch.ones_like(inputs["times"], dtype=torch.bool) if mask is None else mask
        last = (mask.to(torch.int64).sum(dim=1) - 1).clamp(min=0)
        every = tuple(self.predictor.answers(output).values())
        row = torch.arange(last.shape[0], device=last.device)
        final = tuple(part[row, last] for part in every)
        return (*final, *every, data.start.unsqueeze(1) + ends, mask)


def why_no_step(predictor: Predictor) -> str | None:
    """Why a model cannot be run as a stream, and what to do; None if it can."""
    if not isinstance(predictor.members[0], RFormer):
        return "only an RFormer on windows goes on step by step; train one with causal=True"
    return why_no_windows(predictor.encoder, predictor.outputs.causal)


class StepGraph(Exportable):
    """What ``Stream`` says, one call after the other.

    Inputs: new points ``values (B, P, C)`` (NaN = not observed), ``times (B, P)``, ``lengths (B,)``
    (0 = none), ``state (B, S)``, zeros for a new stream, and ``static (B, n)`` if the model takes
    it. A call takes in the points of each stream up to the end of its open window and no further.
    Outputs, in the order of ``outputs``: what the model says then (see ``Graph``); ``time (B,)``,
    up to when; ``ended (B,)``, whether a window ended; ``taken (B,)``, how many points were taken
    in, the others are to be given again; ``next_state (B, S)``.

    NaN is said before a stream's first point and, of a model without a context, after
    ``max_windows`` windows.
    """

    def __init__(self, predictor: Predictor, max_windows: int = MAX_WINDOWS) -> None:
        """``InputError`` for models that cannot be run as a stream."""
        super().__init__()
        reason = why_no_step(predictor)
        if reason is not None:
            raise InputError(f"no step graph can be made of this model: {reason}")
        self.predictor, self.encoder = predictor, predictor.encoder
        self.static_names = predictor.static_names
        self.model = _frozen(predictor.model)
        members: Any = self.model.members if isinstance(self.model, Ensemble) else [self.model]
        self.members = list(members)
        context = self.members[0].config.context
        self.max_windows = None if context is not None else max_windows
        self._tokens = TokenStep(self.encoder.for_padded())
        self.shapes = dict(self._tokens.shapes)
        for m, member in enumerate(self.members):
            for i in range(member.config.n_layers):
                self.shapes[f"member{m}_block{i}"] = member.ring_shape(context or max_windows)
        self.shapes["answer"] = _no_output(predictor).shape[1:]
        static = ("static",) if self.static_names else ()
        self.name_inputs(("values", "times", "lengths", "state", *static), "points")
        self.outputs = (*output_names(predictor), "time", "ended", "taken", "next_state")

    @property
    def state_size(self) -> int:
        """Numbers that one stream remembers."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def forward(
        self,
        values: Tensor,
        times: Tensor,
        lengths: Tensor,
        state: Tensor,
        static: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """See the class."""
        old = self._unpacked(state)
        new, piece, tokens = self._tokens(old, values, times, lengths)
        if static is not None:
            static = encoded_static(self.encoder.static_encoder.columns, static.double())
        output = self._run(tokens, static, piece, old, new)
        # At a window's end there is nothing newer than what was said then.
        still = (piece.window > 0) & (piece.now <= piece.opened)
        output = per_stream(still, old["answer"].float(), output)
        new["answer"] = per_stream(piece.ended, output, old["answer"].float())
        silent = new["points"] == 0
        if self.max_windows is not None:
            silent = silent | (piece.window - still.to(torch.int64) >= self.max_windows)
        answers = [
            per_stream(silent, torch.nan, part) for part in self.predictor.answers(output).values()
        ]
        time = torch.where(new["points"] == 0, torch.nan, new["start"] + piece.now)
        return (*answers, time, piece.ended, piece.taken, self._packed(new))

    def _run(
        self, tokens: Tensor, static: Tensor | None, piece: Piece, old: State, new: State
    ) -> Tensor:
        """``(B, n[, k])``: what the model says of the open windows as they are now."""
        times = (piece.now / number(self.encoder.time_unit, piece.now)).float().unsqueeze(1)
        answers: list[Tensor] = []
        for m, member in enumerate(self.members):
            names = [f"member{m}_block{i}" for i in range(member.config.n_layers)]
            past = [old[name].float() for name in names]
            kept, answer = member.step_tokens(
                past, tokens.unsqueeze(1), times, static, piece.window, piece.ended
            )
            new |= dict(zip(names, kept, strict=True))
            answers.append(answer[:, 0])
        if len(answers) == 1:
            return answers[0]
        assert isinstance(self.model, Ensemble)
        return self.model.joined(torch.stack(answers))

    # Rows of float64, the parts one behind the other: whole numbers and float32 lose nothing there.

    def _unpacked(self, rows: Tensor) -> State:
        parts, at = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            parts[name] = rows[:, at : at + size].reshape(rows.shape[0], *shape)
            at += size
        return parts

    def _packed(self, parts: State) -> Tensor:
        flat = [
            parts[name].double().reshape(parts[name].shape[0], math.prod(shape))
            for name, shape in self.shapes.items()
        ]
        return torch.cat(flat, dim=1)


def _frozen(model: nn.Module) -> nn.Module:
    """Copy a model in evaluation mode without gradients."""
    copied = copy.deepcopy(model).eval().cpu()
    for parameter in copied.parameters():
        parameter.requires_grad_(False)
    return copied


def output_names(predictor: Predictor) -> tuple[str, ...]:
    """Names of the outputs of a model."""
    return tuple(predictor.answers(_no_output(predictor)))


def _no_output(predictor: Predictor) -> Tensor:
    """Zeros of the shape of an output ``(1, n[, k])``."""
    outputs = predictor.outputs
    return outputs.shaped(torch.zeros(1, outputs.n_outputs * outputs.outputs_per_target))
