"""StepGraph: a causal model as one step of a stream, state in and state out."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from roughformer.errors import InputError
from roughformer.export.graph import frozen, names_of, said, static_names
from roughformer.inference import Predictor
from roughformer.model import RFormer
from roughformer.model.committee import Committee
from roughformer.model.rformer import why_no_step as why_no_windows
from roughformer.signatures.torch_backend import number
from roughformer.tokens.padded import encoded_static
from roughformer.tokens.step import Piece, State, TokenStep, per_stream

__all__ = ["MAX_WINDOWS", "StepGraph", "why_no_step"]

MAX_WINDOWS = 1024  # as Stream


def why_no_step(predictor: Predictor) -> str | None:
    """Why a model cannot be run as a stream, and what to do; None if it can."""
    model = predictor.model
    first = model.members[0] if isinstance(model, Committee) else model
    if not isinstance(first, RFormer):
        return "only an RFormer on windows goes on step by step; train one with causal=True"
    return why_no_windows(predictor.encoder, predictor.outputs.causal)


class StepGraph(nn.Module):
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
        self.static_names = static_names(predictor)
        self.model = frozen(predictor.model)
        members: Any = self.model.members if isinstance(self.model, Committee) else [self.model]
        self.members = list(members)
        context = self.members[0].config.context
        self.max_windows = None if context is not None else max_windows
        self._tokens = TokenStep(self.encoder)
        self.shapes = dict(self._tokens.shapes)
        for m, member in enumerate(self.members):
            for i in range(member.config.n_layers):
                self.shapes[f"member{m}_block{i}"] = member.ring_shape(context or max_windows)
        outputs = predictor.outputs
        self.shapes["answer"] = outputs.shaped(
            torch.zeros(1, outputs.n_outputs * outputs.outputs_per_target)
        ).shape[1:]

    @property
    def state_size(self) -> int:
        """Numbers that one stream remembers."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs."""
        static = ("static",) if self.static_names else ()
        return ("values", "times", "lengths", "state", *static)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return (*names_of(self.predictor), "time", "ended", "taken", "next_state")

    @property
    def dynamic(self) -> dict[str, dict[int, str]]:
        """Axes of any size."""
        axes = {"values": {0: "batch", 1: "points"}, "times": {0: "batch", 1: "points"}}
        return axes | {name: {0: "batch"} for name in self.inputs[2:]}

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
        answers = [per_stream(silent, torch.nan, part) for part in said(self.predictor, output)]
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
        assert isinstance(self.model, Committee)
        return self.model.joined(torch.stack(answers))

    # Rows of float64, the parts one behind the other: whole numbers and float32 lose nothing there.

    def _unpacked(self, rows: Tensor) -> State:
        found, at = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            found[name] = rows[:, at : at + size].reshape(rows.shape[0], *shape)
            at += size
        return found

    def _packed(self, parts: State) -> Tensor:
        flat = [
            parts[name].double().reshape(parts[name].shape[0], math.prod(shape))
            for name, shape in self.shapes.items()
        ]
        return torch.cat(flat, dim=1)
