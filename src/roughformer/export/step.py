"""StepGraph: a causal model as one step of a stream, state in and state out."""

from typing import Any

import torch
from torch import Tensor, nn

from roughformer.errors import InputError
from roughformer.export.dense import number
from roughformer.export.graph import names_of, said, static_names
from roughformer.export.inputs import encoded_static
from roughformer.export.packing import Packing, State, per_stream
from roughformer.export.ready import ready_member
from roughformer.export.step_attention import StepModel
from roughformer.export.step_observations import StepObservations
from roughformer.export.step_words import StepWords
from roughformer.export.taking import Piece, Taking
from roughformer.model import RFormer
from roughformer.model.committee import Committee
from roughformer.predictor import Predictor
from roughformer.tokens import Tokenizer

__all__ = ["MAX_WINDOWS", "StepGraph", "why_no_step"]

MAX_WINDOWS = 1024  # as Stream


def why_no_step(predictor: Predictor) -> str | None:
    """Why a model cannot be run as a stream, and what to do; None if it can."""
    encoder, model = predictor.encoder, predictor.model
    first = model.members[0] if isinstance(model, Committee) else model
    if not isinstance(encoder, Tokenizer) or not isinstance(first, RFormer):
        return "only an RFormer on windows goes on step by step; train one with causal=True"
    if not predictor.outputs.causal:
        return "this model looks at a series as a whole; train one with causal=True"
    config = encoder.config
    if config.rule.rule not in ("duration", "points"):
        return (
            "windows of a stream are by duration or by points, others end where the end of the "
            "series says; train with windows=rf.Windows.by_duration(...)"
        )
    if config.lags:
        return "lags need the past itself, which a stream does not keep; train without"
    if not config.hold or config.time == "span" or config.spectrum is not None:
        return "its tokens are made of the whole series; train with causal=True"
    return None


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
        self.model = ready_member(predictor.model)
        members: Any = self.model.members if isinstance(self.model, Committee) else [self.model]
        config, context = self.encoder.config, members[0].config.context
        self.max_windows = None if context is not None else max_windows
        self.packing = Packing()
        self._take = Taking(config.rule, len(self.encoder.channels), self.packing)
        self._parts: list[StepWords | StepObservations] = []
        if config.depth:
            self._parts.append(StepWords(self.encoder, self.packing))
        if self.encoder.value_range is not None:
            self._parts.append(StepObservations(self.encoder, self.packing))
        self._members = [
            StepModel(member, context or max_windows, f"member{m}", self.packing)
            for m, member in enumerate(members)
        ]
        outputs = predictor.outputs
        self._answer = outputs.shaped(
            torch.zeros(1, outputs.n_outputs * outputs.outputs_per_target)
        ).shape[1:]
        self.packing.add("answer", *self._answer)

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
        old, new = self.packing.unpack(state), State()
        piece = self._take(values, times, lengths, old, new)
        tokens = torch.cat([part(piece, old, new) for part in self._parts], dim=-1).float()
        if static is not None:
            static = encoded_static(self.encoder.static_encoder, static.double())
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
        return (*answers, time, piece.ended, piece.taken, self.packing.pack(new))

    def _run(
        self, tokens: Tensor, static: Tensor | None, piece: Piece, old: State, new: State
    ) -> Tensor:
        """``(B, n[, k])``: what the model says of the open windows as they are now."""
        times = (piece.now / number(self.encoder.time_unit, piece.now)).float()
        answers = [member(tokens, times, static, piece, old, new) for member in self._members]
        if len(answers) == 1:
            return answers[0]
        assert isinstance(self.model, Committee)
        return self.model.joined(torch.stack(answers))
