"""The native kernel as torch operators, and the choice between it and the definition.

``roughformer::window_signatures`` and ``roughformer::clock_words`` are registered with torch, so
that ``torch.compile``, autocast, ``vmap`` and data-loader workers take them. They compute what
``torch_backend`` says, on a CPU.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from roughformer.signatures import library
from roughformer.signatures.lifts import Basepoint, Clock, Layout, Lift, Time, View, layout_of
from roughformer.signatures.paths import Cuts, Path
from roughformer.signatures.torch_backend import (
    Observed,
    Placed,
    Points,
    as_levels,
    as_words,
    clock_words_through,
    finish_view,
    held_points,
    in_transform,
    inside_of,
    lifted,
    linear_points,
    linear_points_backward,
    number,
    observed,
    path_at,
    path_levels,
    place_knots,
    real_only,
    signature_tokens,
    window_clock_words,
    with_counts,
)

_SMALL = 1 << 14  # numbers that torch works through faster than the kernel is called
_VIEWS: dict[str, tuple[View, ...]] = {
    "global": ("global",),
    "local": ("local",),
    "both": ("global", "local"),
}


@lru_cache(maxsize=256)
def _plain_layout(
    channels: int, depth: int, views: str, time_unit: float, basepoint: bool
) -> Layout:
    """Of a path lifted by time (unit 0: not at all, below 0: the series' own span)."""
    lifts: list[Lift] = [Basepoint()] if basepoint else []
    if time_unit:
        lifts.append(Time(time_unit if time_unit > 0 else None))
    return layout_of(channels, depth, _VIEWS[views], lifts)


def _time_unit(time: Time | None) -> float:
    if time is None:
        return 0.0
    return -1.0 if time.unit is None else time.unit


# What the kernel takes


def _path(values: Tensor, times: Tensor, lengths: Tensor, raw: bool = True) -> Path:
    """Padded series as a path of the kernel, gaps filled; values that are not ``raw`` have none."""
    batch, size, channels = values.shape
    given = values.detach().contiguous().numpy().reshape(batch * size, channels)
    stamps = np.ascontiguousarray(times.detach().numpy(), np.float64).reshape(-1)
    starts = np.arange(batch, dtype=np.int64) * size
    counts = np.ascontiguousarray(lengths.detach().numpy(), np.int64)
    path = Path(given, stamps, starts, counts, starts)
    if raw and np.isnan(given).any():
        path = replace(path, values=library.fill_rows(path)[0])
    return path


def _request(
    path: Path, edges: Tensor, depth: int, views: str, time_unit: float, basepoint: bool
) -> library.Request:
    layout = _plain_layout(path.dim, depth, views, time_unit, basepoint)
    if time_unit:
        last = path.times[path.time_starts + path.lengths - 1]
        span = last - path.first_times
        unit = np.full(len(span), time_unit) if time_unit > 0 else span
        scale = np.divide(1.0, unit, out=np.zeros(len(unit)), where=unit > 0)
        path = replace(path, time_scale=scale)
    return library.Request(
        path=path,
        cuts=_cuts(path, edges),
        depth=depth,
        at={view: layout.at(view) for view in layout.views},
        basepoint=basepoint,
        compute=path.values.dtype.type,
    )


def _cuts(path: Path, edges: Tensor) -> Cuts:
    batch, n_edges = edges.shape
    return Cuts(
        np.ascontiguousarray(edges.detach().numpy(), np.float64).reshape(-1),
        np.arange(batch, dtype=np.int64) * n_edges,
        np.full(batch, n_edges - 1, dtype=np.int64),
        path.first_times,
        shared=False,
    )


# The operators


@torch.library.custom_op("roughformer::window_signatures", mutates_args=(), device_types="cpu")
def window_signatures(
    values: Tensor,
    times: Tensor,
    lengths: Tensor,
    edges: Tensor,
    depth: int,
    views: str,
    time_unit: float,
    basepoint: bool,
    raw: bool,
) -> Tensor:
    """Signatures ``(B, W, words)`` of the views over windows between ``edges (B, W + 1)``, counted
    from the first points; see ``torch_backend.signature_tokens``.
    """
    path = _path(values, times, lengths, raw)
    request = _request(path, edges, depth, views, time_unit, basepoint)
    size = _plain_layout(values.shape[2], depth, views, time_unit, basepoint).size
    out = library.new_result((values.shape[0], edges.shape[1] - 1, size), path.values.dtype)
    library.forward(request, out)
    return torch.from_numpy(out)


@window_signatures.register_fake
def _(values: Tensor, times: Tensor, lengths: Tensor, edges: Tensor, *options: Any) -> Tensor:
    size = _plain_layout(int(values.shape[2]), *options[:4]).size
    return values.new_empty(values.shape[0], edges.shape[1] - 1, size)


@torch.library.custom_op(
    "roughformer::window_signatures_backward", mutates_args=(), device_types="cpu"
)
def window_signatures_backward(
    grad: Tensor,
    out: Tensor,
    values: Tensor,
    times: Tensor,
    lengths: Tensor,
    edges: Tensor,
    depth: int,
    views: str,
    time_unit: float,
    basepoint: bool,
) -> Tensor:
    """Gradient ``(B, L, C)`` in the values, from that in the signatures ``out``."""
    path = _path(values, times, lengths)
    request = _request(path, edges, depth, views, time_unit, basepoint)
    result, slopes = (x.detach().contiguous().numpy() for x in (out, grad))
    grad = torch.from_numpy(library.backward(request, result, slopes)).reshape(values.shape)
    if not values.isnan().any():
        return grad
    return linear_points_backward(observed(values, times, lengths), grad)


@window_signatures_backward.register_fake
def _(grad: Tensor, out: Tensor, values: Tensor, *inputs: Any) -> Tensor:
    return torch.empty_like(values, memory_format=torch.contiguous_format)


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    values, times, lengths, edges, *ctx.options, _ = inputs
    ctx.save_for_backward(values, times, lengths, edges, output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    values, times, lengths, edges, output = ctx.saved_tensors
    options = ctx.options
    if torch.is_grad_enabled():
        # Second derivatives are wanted: those of the definition.
        layout = _plain_layout(values.shape[2], *options)
        tokens = signature_tokens(observed(values, times, lengths), Placed(edges, None), layout)
        (slope,) = torch.autograd.grad(
            tokens.to(values.dtype), values, grad, create_graph=True, allow_unused=True
        )
    else:
        slope = torch.ops.roughformer.window_signatures_backward(
            grad, output, values, times, lengths, edges, *options
        )
    return (slope, *[None] * 8)


window_signatures.register_autograd(_backward, setup_context=_keep_inputs)


@torch.library.custom_op("roughformer::clock_words", mutates_args=(), device_types="cpu")
def clock_words(
    values: Tensor,
    times: Tensor,
    lengths: Tensor,
    edges: Tensor,
    frequencies: list[float],
    count: int,
    spacing: float,
    view: str,
    raw: bool,
) -> Tensor:
    """Clock words ``(B, W, C · count · 2)``; see ``torch_backend.window_clock_words``."""
    path = _path(values, times, lengths, raw)
    clock = Clock(count, spacing, tuple(frequencies) or None)
    shape = (values.shape[0], edges.shape[1] - 1, values.shape[2] * count * 2)
    out = library.new_result(shape, path.values.dtype)
    library.clock_words(path, _cuts(path, edges), clock, view, out, None, path.values.dtype)
    return torch.from_numpy(out)


@clock_words.register_fake
def _(
    values: Tensor, times: Tensor, lengths: Tensor, edges: Tensor, turns: Any, count: int, *_: Any
) -> Tensor:
    size = values.shape[2] * count * 2
    return values.new_empty(values.shape[0], edges.shape[1] - 1, size)


def batched(operator: Any) -> Any:
    """The rule for ``vmap``: what is mapped over becomes part of the batch."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        n = info.batch_size
        parts = []
        for x, dim in zip(args, in_dims, strict=True):
            if isinstance(x, Tensor):
                x = x.movedim(dim, 0) if dim is not None else x.expand(n, *x.shape)
                x = x.flatten(0, 1)
            parts.append(x)
        result: Tensor = operator(*parts)
        return result.reshape(n, -1, *result.shape[1:]), 0

    return rule


for _operator in (window_signatures, window_signatures_backward, clock_words):
    _operator.register_vmap(batched(_operator))


# The choice


def padded_tokens(
    values: Tensor,
    times: Tensor,
    lengths: Tensor,
    placed: Placed,
    layout: Layout,
    *,
    hold: bool = False,
    context: int | None = None,
    native: bool = True,
) -> Tensor:
    """Tokens ``(B, W, F)`` of padded series in the dtype of the values, by the kernel if it can;
    see ``torch_backend.signature_tokens``.
    """
    if not native or not kernel_serves(values, times, placed.edges):
        tokens = signature_tokens(
            observed(values, times, lengths), placed, layout, hold=hold, context=context
        )
        return tokens.to(values.dtype)
    data = None
    if hold or context is not None or layout.has_corners:
        data = observed(values, times, lengths)
    kind = torch.float64 if values.dtype == torch.float64 or data is not None else torch.float32
    with torch.autocast(values.device.type, enabled=False):
        # Differences are taken before any rounding: the kernel does so itself.
        signatures, clocks = (
            _plain_parts(values.to(kind), times.double(), lengths, placed.edges, layout)
            if data is None
            else _lifted_parts(data, placed.edges, layout, hold, context)
        )
    tokens = torch.cat(signatures + clocks, dim=-1)
    return real_only(tokens, placed.mask).to(values.dtype)


def piece_signature(x: Tensor, times: Tensor, depth: int, time_unit: float) -> Tensor:
    """Signatures ``(B, words)`` of paths through the corners ``times (B, M)``, ``x (B, M, C)``, all
    of each; ``time_unit``: 0 for no channel of time.
    """
    if x.numel() * x.shape[2] ** (depth - 1) > _SMALL and kernel_serves(x, times, times):
        lengths, edges = _whole_path(times)
        words: Tensor = torch.ops.roughformer.window_signatures(
            x, times, lengths, edges, depth, "local", time_unit, False, False
        )
        return words[:, 0]
    steps = x[:, 1:] - x[:, :-1]
    if time_unit:
        clock = (times[:, 1:] - times[:, :-1]) * number(1.0 / time_unit, times)
        steps = torch.cat([clock.unsqueeze(-1), steps], dim=-1)
    return as_words(path_levels(steps, depth))


def piece_clock_words(x: Tensor, times: Tensor, origin: Tensor, omega: Sequence[float]) -> Tensor:
    """Clock words ``(B, C, J, 2)`` of the same paths; the clock starts at ``origin (B,)``."""
    since = times - origin.unsqueeze(1)
    wanted = torch.is_grad_enabled() and x.requires_grad
    small = x.shape[0] * x.shape[1] * len(omega) < _SMALL
    if wanted or small or not kernel_serves(x, times, times):
        return clock_words_through(Points(since, x), omega)
    lengths, edges = _whole_path(times)
    words: Tensor = torch.ops.roughformer.clock_words(
        x, times, lengths, edges, list(omega), len(omega), 1.0, "local", False
    )
    # The kernel's clock starts with the path.
    turns = torch.tensor(omega, dtype=torch.float64, device=x.device)
    angle = (since[:, :1] * turns).unsqueeze(1)
    real, imaginary = words.reshape(x.shape[0], x.shape[2], len(omega), 2).unbind(dim=-1)
    cosine, sine = angle.cos(), angle.sin()
    return torch.stack([real * cosine - imaginary * sine, real * sine + imaginary * cosine], dim=-1)


def _whole_path(times: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths ``(B,)`` and edges ``(B, 2)`` of one window over all of each path."""
    edges = torch.stack([torch.zeros_like(times[:, 0]), times[:, -1] - times[:, 0]], dim=1)
    return torch.full_like(times[:, 0], times.shape[1], dtype=torch.int64), edges


def _kernel_loads() -> bool:
    return library.load() is not None


# What torch.compiler.assume_constant_result does, but for loading the compiler: a second a process.
_kernel_loads._dynamo_marked_constant = True  # type: ignore[attr-defined]


def kernel_serves(values: Tensor, times: Tensor, edges: Tensor) -> bool:
    """Whether the kernel can be used: on a CPU, without gradients in times."""
    if not torch.compiler.is_compiling() and (
        torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    ):
        return False
    if values.device.type != "cpu" or torch.compiler.is_exporting() or not _kernel_loads():
        return False
    return not (torch.is_grad_enabled() and (times.requires_grad or edges.requires_grad))


def _plain_parts(
    values: Tensor, times: Tensor, lengths: Tensor, edges: Tensor, layout: Layout
) -> tuple[list[Tensor], list[Tensor]]:
    """Signatures and clock words of views that are lifted by time at most."""
    words: dict[View, Tensor] = {}
    for time, basepoint, views in layout.passes:
        name, unit = "both" if len(views) == 2 else views[0], _time_unit(time)
        joint = torch.ops.roughformer.window_signatures(
            values, times, lengths, edges, layout.depth, name, unit, basepoint, True
        )
        words |= dict(zip(_VIEWS[name], joint.chunk(len(views), dim=-1), strict=True))
    signatures = [in_transform(words[view], layout, view) for view in layout.views]
    return signatures, _clock_parts(values, times, lengths, edges, layout, True)


def _lifted_parts(
    data: Observed, edges: Tensor, layout: Layout, hold: bool, context: int | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The same of any path: it is held and lifted in torch."""
    points = held_points(data, edges, _complete(data)) if hold else linear_points(data)
    n_channels = len(layout.channels)
    full = torch.full_like(data.lengths, points.times.shape[1])
    parts: dict[View, Tensor] = {}
    for view, path in zip(layout.views, layout.paths, strict=True):
        if view in parts:
            continue
        own = with_counts(points, data, layout.lifts[view])
        lifts, count, since = layout.lifts[view], full, edges
        unit = _time_unit(lifts.time)
        if unit < 0 or lifts.lags:
            knots = place_knots(own.times, edges, tuple(lag.delay for lag in lifts.lags))
            own = Points(knots.times, lifted(own, knots, lifts, n_channels))
            count = torch.full_like(data.lengths, own.x.shape[1])
            unit, since = 0.0, edges - edges[:, :1]  # knots begin at the first cut
        # Over a context the global view is made of local signatures, too.
        sliding = context is not None
        sharing = [v for v, p in zip(layout.views, layout.paths, strict=True) if p == path]
        name = "local" if sliding else "both" if len(sharing) == 2 else view
        words = torch.ops.roughformer.window_signatures(
            own.x, own.times, count, since, layout.depth, name, unit, False, False
        )
        size = words.shape[-1] // len(_VIEWS[name])
        for v in sharing:
            at = size if name == "both" and v == "local" else 0
            levels = as_levels(words[..., at : at + size], layout.dim(v), layout.depth)
            starts = None
            if layout.lifts[v].basepoint:
                first = int(unit == 0 and lifts.time is not None)
                starts = path_at(own, edges[:, :-1])[..., first:]
            parts[v] = finish_view(levels, starts, layout, v, context)
    clocks = _clock_parts(points.x[..., :n_channels], points.times, full, edges, layout, False)
    return [parts[view] for view in layout.views], clocks


def _complete(data: Observed) -> bool:
    """Whether no value is missing; a graph in the making does not look."""
    if torch.compiler.is_compiling():
        return False
    inside = inside_of(data.lengths, data.seen.shape[1])
    return bool((data.seen.all(dim=2) == inside).all())


def _clock_parts(
    values: Tensor, times: Tensor, lengths: Tensor, edges: Tensor, layout: Layout, raw: bool
) -> list[Tensor]:
    parts = []
    wanted = torch.is_grad_enabled() and values.requires_grad
    for view in layout.views:
        clock = layout.lifts[view].clock
        if clock is None:
            continue
        if wanted:
            points = linear_points(observed(values, times, lengths))
            knots = place_knots(points.times, edges)
            parts.append(window_clock_words(path_at(points, knots.times), knots, clock, view))
        else:
            turns = [] if clock.frequencies is None else list(clock.frequencies)
            parts.append(
                torch.ops.roughformer.clock_words(
                    values, times, lengths, edges, turns, clock.count, clock.spacing, view, raw
                )
            )
    return parts
