"""The signature layer and the Rough Transformer as modules on tensors."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.data import DataLoader

import roughformer as rf
from roughformer.nn import MultiViewSignature
from roughformer.signatures import operators

LIFTS = {
    "none": (),
    "time": [rf.Time()],
    "unit, basepoint": [rf.Time(2.0), rf.Basepoint()],
    "lag, counts": [rf.Time(), rf.Lag(0.4), rf.Counts()],
    "clock": [rf.Clock(2)],
    "by view": {"local": [rf.Time(), rf.Clock(2)], "global": [rf.Basepoint()]},
}
WINDOWS = {
    "count": 3,
    "duration": rf.Windows.by_duration(0.9),
    "points": rf.Windows.by_points(3),
    "explicit": [1.0, 2.0, 2.5, 9.0],
}


def ragged(batch=4, length=9, channels=2, missing=0.3, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    values = torch.randn(batch, length, channels, dtype=dtype).cumsum(dim=1)
    values[torch.rand(values.shape) < missing] = torch.nan
    times = (torch.rand(batch, length, dtype=torch.float64) + 0.1).cumsum(dim=1)
    return values, times, torch.randint(1, length + 1, (batch,))


def as_batch(values, times, lengths):
    inside = torch.arange(values.shape[1]) < lengths[:, None]
    offsets = np.concatenate([[0], np.cumsum(lengths.numpy())])
    return rf.SeriesBatch(times[inside].numpy(), values[inside].numpy(), offsets)


@pytest.mark.filterwarnings("ignore::roughformer.UnobservedWarning")
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("lifts", LIFTS)
@pytest.mark.parametrize("transform", ["signature", "logsignature"])
def test_the_layer_is_the_engine_on_padded_tensors(windows, lifts, transform):
    values, times, lengths = ragged()
    layer = MultiViewSignature(WINDOWS[windows], 3, lifts=LIFTS[lifts], transform=transform)
    batch = as_batch(values, times, lengths)
    want = rf.multiview_signature(
        batch, WINDOWS[windows], 3, lifts=LIFTS[lifts], transform=transform
    )
    tokens, ends, mask = layer(values, times, lengths)
    assert tokens.shape[2] == layer.n_features(2) == len(layer.feature_names(2))
    np.testing.assert_allclose(tokens, want, atol=1e-9)
    cuts = rf.Windows.of(WINDOWS[windows]).place(batch)
    for b in range(4):
        np.testing.assert_allclose(ends[b][mask[b]], cuts.of(b)[1:], atol=1e-12)
    # The definition says the same, and so does what stands in the padding not matter.
    data = operators.observed(values, times, lengths)
    placed = operators.Placed(*_placed(layer, data))
    layout = rf.signatures.layout_of(2, *layer.options)
    slow = operators.padded_tokens(values, times, lengths, placed, layout, native=False)
    np.testing.assert_allclose(tokens, slow, atol=1e-9)


def _placed(layer, data):
    from roughformer.signatures.windows import place

    return place(layer.windows, data)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tokens_have_the_dtype_of_the_values_and_times_that_of_the_times(dtype):
    values, times, lengths = ragged(dtype=torch.float64)
    tokens, ends, _ = MultiViewSignature(3)(values.to(dtype), times.float(), lengths)
    assert tokens.dtype == dtype
    assert ends.dtype == torch.float32


def test_without_times_points_are_one_apart_and_shared_times_serve_all():
    values, _, _ = ragged(missing=0.0)
    layer = MultiViewSignature(4, lifts=["time"])
    plain = layer(values).tokens
    shared = torch.arange(values.shape[1]).double()
    assert torch.equal(plain, layer(values, shared).tokens)
    assert torch.equal(plain, layer(values, shared.expand(4, -1)).tokens)


@pytest.mark.parametrize("lifts", LIFTS)
@pytest.mark.parametrize("hold", [False, True])
def test_gradients_flow_to_values_and_times(lifts, hold):
    values, times, _ = ragged(batch=2, length=5, missing=0.2, seed=3)
    lengths = torch.tensor([5, 4])
    if hold and lifts == "lag, counts":
        with pytest.raises(rf.InputError, match="no gaps to count"):
            MultiViewSignature(3, 2, lifts=LIFTS[lifts], hold=hold)
        return
    layer = MultiViewSignature(3, 2, lifts=LIFTS[lifts], hold=hold)
    known = ~values.isnan()

    def of_values(x):
        return layer(torch.where(known, x, torch.nan), times, lengths).tokens

    start = values.nan_to_num(0.0).requires_grad_()
    assert gradcheck(of_values, start, fast_mode=True)
    if hold:
        return  # a held value jumps where its time crosses a window's end
    when = times.clone().requires_grad_()
    assert gradcheck(lambda t: layer(values, t, lengths).tokens, when, fast_mode=True)
    assert gradcheck(lambda t: layer(values, t, lengths).times, when, fast_mode=True)


def test_second_derivatives_are_those_of_the_definition():
    values, times, lengths = ragged(batch=2, length=4, missing=0.0)
    layer = MultiViewSignature(2, 2, lifts=[rf.Time(1.0)])
    assert gradgradcheck(lambda v: layer(v, times, lengths).tokens, values.requires_grad_())


@pytest.mark.parametrize("lifts", ["none", "unit, basepoint", "lag, counts", "clock"])
def test_vmap_takes_the_layer(lifts):
    sets = [ragged(seed=s) for s in range(3)]
    values, times, lengths = (torch.stack(part) for part in zip(*sets, strict=True))
    layer = MultiViewSignature(3, 2, lifts=LIFTS[lifts])
    found = torch.func.vmap(lambda v, t, n: layer(v, t, n).tokens)(values, times, lengths)
    for i in range(3):
        want = layer(values[i], times[i], lengths[i]).tokens
        torch.testing.assert_close(found[i], want)


def test_per_sample_gradients_can_be_taken():
    values, times, lengths = ragged(missing=0.0)
    layer = MultiViewSignature(3, 2)

    def loss(v, t, n):
        return layer(v[None], t[None], n[None]).tokens.square().sum()

    found = torch.func.vmap(torch.func.grad(loss))(values, times, lengths)
    for b in range(4):
        one = values[b].clone().requires_grad_()
        loss(one, times[b], lengths[b]).backward()
        torch.testing.assert_close(found[b], one.grad)


@pytest.mark.parametrize(
    "lifts", ["none", "unit, basepoint", "lag, counts", "clock", "hold", "log"]
)
def test_compile_takes_the_layer_as_one_graph(lifts):
    values, times, lengths = ragged()
    transform = "logsignature" if lifts == "log" else "signature"
    layer = MultiViewSignature(
        3, 2, lifts=LIFTS.get(lifts, ()), hold=lifts == "hold", transform=transform
    )
    net = torch.nn.Linear(layer.n_features(2), 1).double()

    def loss(v, t, n):
        return net(layer(v, t, n).tokens).square().sum()

    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for batch in (values, ragged(seed=5)[0]):
        x = batch.nan_to_num(0.5)
        one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
        loss(one, times, lengths).backward()
        compiled(two, times, lengths).backward()
        torch.testing.assert_close(one.grad, two.grad)


def test_compile_takes_many_channels_that_it_has_not_met():
    compiled = torch.compile(MultiViewSignature(4), fullgraph=True, backend="aot_eager")
    values = torch.randn(2, 9, 20)
    torch.testing.assert_close(compiled(values).tokens, MultiViewSignature(4)(values).tokens)


def test_vmap_of_windows_that_depend_on_the_data_is_refused_in_words():
    layer, times = MultiViewSignature({"duration": 2.0}), torch.rand(2, 9).cumsum(1)
    with pytest.raises(rf.InputError, match="under vmap have no numbers"):
        torch.vmap(lambda x, t: layer(x[None], t[None]).tokens)(torch.randn(2, 9, 1), times)


def test_the_operator_keeps_its_promises_to_torch():
    values, times, lengths = ragged(missing=0.0)
    edges = (times[:, -1:] - times[:, :1]) * torch.linspace(0, 1, 4, dtype=torch.float64)
    args = (values.requires_grad_(), times, lengths, edges, 2, "both", 1.0, False, True)
    torch.library.opcheck(torch.ops.roughformer.window_signatures.default, args)


def test_forward_mode_gradients_are_not_lost():
    values, times, lengths = ragged(missing=0.0)
    layer = MultiViewSignature(3, 2)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(values, torch.ones_like(values))
        found = torch.autograd.forward_ad.unpack_dual(layer(dual, times, lengths).tokens)
    assert found.tangent is not None  # a translation changes no signature
    torch.testing.assert_close(found.tangent, torch.zeros_like(found.tangent))


def test_export_gives_a_program_of_plain_operations_for_any_sizes():
    values, times, lengths = ragged()
    layer = MultiViewSignature(3, 2, lifts=[rf.Time(2.0), rf.Clock(2)])
    batch, length = torch.export.Dim("batch", min=1), torch.export.Dim("length", min=2)
    shapes = ({0: batch, 1: length}, {0: batch, 1: length}, {0: batch})
    program = torch.export.export(layer, (values, times, lengths), dynamic_shapes=shapes)
    assert "roughformer" not in str(program.graph)
    other = ragged(batch=7, length=13, seed=2)
    torch.testing.assert_close(program.module()(*other).tokens, layer(*other).tokens)


def test_autocast_does_not_touch_the_signatures():
    values, times, lengths = ragged(dtype=torch.float32)
    layer = MultiViewSignature(3, 3, lifts=[rf.Time(2.0), rf.Clock(2)])
    want = layer(values, times, lengths).tokens
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(values, times, lengths).tokens
    assert torch.equal(found, want)


class _Series(torch.utils.data.Dataset):
    layer = MultiViewSignature(3, 2)

    def __len__(self):
        return 6

    def __getitem__(self, i):
        values, times, lengths = ragged(batch=1, seed=i)
        return self.layer(values, times, lengths).tokens[0]


def test_workers_of_a_loader_take_the_layer():
    alone = torch.cat(list(DataLoader(_Series(), batch_size=2)))
    together = torch.cat(list(DataLoader(_Series(), batch_size=2, num_workers=2)))
    assert torch.equal(alone, together)


def test_on_another_device_nothing_is_copied_to_the_host():
    """On the meta device there are no numbers: a copy to the host would raise."""
    values = torch.empty(4, 9, 2, device="meta")
    times, lengths = torch.empty(4, 9, device="meta"), torch.ones(4, device="meta").long()
    for lifts in LIFTS.values():
        layer = MultiViewSignature(5, 3, lifts=lifts, transform="logsignature")
        tokens, ends, mask = layer(values, times, lengths)
        assert {x.device.type for x in (tokens, ends, mask)} == {"meta"}
        assert tokens.shape == (4, 5, layer.n_features(2))
    for rule in (rf.Windows.by_duration(1.0), rf.Windows.by_points(3)):
        with pytest.raises(
            rf.InputError, match="tensors on the meta device or under vmap have no numbers"
        ):
            MultiViewSignature(rule)(values, times, lengths)


WRONG = [
    (lambda v, t, n: (v[0], t, n), r"\(batch, length, channels\)"),
    (lambda v, t, n: (v[:, :0], t[:, :0], n), "length of at least 1"),
    (lambda v, t, n: (v, t[:, :3], n), r"times must be \(4, 9\)"),
    (lambda v, t, n: (v, t.flip(1), n * 0 + 9), "times must be finite and increase"),
    (lambda v, t, n: (v, t.round(), n * 0 + 9), "merge points of the same time"),
    (lambda v, t, n: (v, t * torch.nan, n), "times must be finite and increase"),
    (lambda v, t, n: (v, t, n * 0), "lengths must be from 1 to 9"),
    (lambda v, t, n: (v, t, n * 0 + 10), "lengths must be from 1 to 9"),
    (lambda v, t, n: (v, t, n.double()), "lengths must be 4 whole numbers"),
    (lambda v, t, n: (v, t, n > 0), "lengths must be 4 whole numbers"),
    (lambda v, t, n: (v, t[:, 0], n), r"times must be \(4, 9\) or \(9,\), got \(4,\)"),
    (lambda v, t, n: (v, t.to("meta"), n), "must be on one device, got cpu, meta and cpu"),
    (lambda v, t, n: (v / 0, t, n), "values must be finite"),
    (lambda v, t, n: (v.long(), t, n), "floating-point"),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
@pytest.mark.parametrize("options", [{}, {"hold": True}, {"lifts": [rf.Lag(0.3)]}])
@pytest.mark.parametrize("grad", [False, True])
def test_wrong_series_are_refused_in_words_on_every_path(case, options, grad):
    values, times, lengths = ragged(missing=0.0)
    change, words = WRONG[case]
    values, times, lengths = change(values, times, lengths)
    if grad:
        times = times.requires_grad_()
    with pytest.raises(rf.InputError, match=words):
        MultiViewSignature(3, **options)(values, times, lengths)


def test_no_series_have_no_tokens_and_whole_times_have_fractions_of_windows():
    none = torch.zeros(0, 5, 2)
    assert MultiViewSignature(3)(none).tokens.shape == (0, 3, 12)
    assert MultiViewSignature(rf.Windows.by_duration(2.0))(none).tokens.shape == (0, 1, 12)
    ends = MultiViewSignature(4)(torch.randn(1, 10, 1), torch.arange(10)).times
    assert ends.tolist() == [[2.25, 4.5, 6.75, 9.0]]


def test_the_example_of_a_training_loop_learns(capsys):
    path = Path(__file__).parents[1] / "examples" / "training_loop.py"
    spec = importlib.util.spec_from_file_location("training_loop", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.main(epochs=3) > 0.8
    assert "epoch 3" in capsys.readouterr().out


def test_times_and_lengths_may_be_lists_and_values_must_be_a_tensor():
    layer = rf.nn.MultiViewSignature(3, 2, lifts=[rf.Time()])
    x = torch.randn(2, 6, 2)
    times = [0.0, 1.0, 2.5, 3.0, 4.0, 7.0]
    found = layer(x, times, [4, 6]).tokens
    assert torch.equal(found, layer(x, torch.tensor(times), torch.tensor([4, 6])).tokens)
    with pytest.raises(rf.InputError, match=r"values must be a tensor .* got ndarray"):
        layer(x.numpy())
