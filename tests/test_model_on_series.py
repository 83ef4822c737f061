"""RFormer on padded series: the same as the estimators' way, as streams, and saved."""

import numpy as np
import pytest
import torch

import roughformer as rf

rng = np.random.default_rng(0)


def padded(n=6, longest=30, channels=2, missing=0.2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, longest + 1, (n,), generator=generator)
    lengths[0] = longest
    values = torch.randn(n, longest, channels, generator=generator).cumsum(dim=1)
    values[torch.rand(values.shape, generator=generator) < missing] = torch.nan
    times = (torch.rand(n, longest, generator=generator).double() + 0.05).cumsum(dim=1) + 50
    return values, times, lengths


def as_batch(values, times, lengths, **extras):
    inside = torch.arange(values.shape[1]) < lengths[:, None]
    offsets = np.concatenate([[0], np.cumsum(lengths.numpy())])
    return rf.SeriesBatch(times[inside].numpy(), values[inside].numpy(), offsets, **extras)


CASES = {
    "default": {},
    "three levels, local": {"depth": 3, "views": ("local",)},
    "clock, basepoint": {"clock": 3, "basepoint": True},
    "lags, counts": {"lags": (0.5,), "counts": True},
    "logsignature": {"transform": "logsignature", "depth": 3},
    "observations": {"observations": True, "depth": 0},
    "duration": {"windows": {"duration": 1.9}},
    "spectrum": {"spectrum": {"count": 20, "low": 0.1, "high": 2.0}},
}


@pytest.mark.filterwarnings("ignore::roughformer.UnobservedWarning")
@pytest.mark.parametrize("case", CASES)
def test_the_model_makes_the_tokens_of_its_tokenizer(case):
    series = padded()
    tokens = rf.TokenConfig(**{"windows": 5, **CASES[case]})
    model = rf.RFormer(n_channels=2, n_outputs=3, tokens=tokens, d_model=16).eval()
    model.fit_scaling(series)
    inputs = model.tokens_of(*series)
    want = model.tokenizer.encode(as_batch(*series))
    assert set(inputs) == set(want)
    for name, x in want.items():
        torch.testing.assert_close(inputs[name], x, atol=2e-5, rtol=1e-4, equal_nan=True)
    with torch.no_grad():
        torch.testing.assert_close(model(*series), model.from_tokens(**want), atol=1e-5, rtol=0)


def test_a_model_says_that_it_must_see_series_first():
    model = rf.RFormer(n_channels=2, n_outputs=3)
    with pytest.raises(rf.InputError, match=r"model.fit_scaling\(loader\)"):
        model(*padded())
    with pytest.raises(rf.InputError, match="needs n_channels= and n_outputs="):
        rf.RFormer()
    with pytest.raises(rf.InputError, match="needs the training series, got none"):
        model.fit_scaling([])
    with pytest.raises(rf.InputError, match="takes a SeriesBatch"):
        model.fit_scaling(3)


def test_scaling_comes_from_a_loader_a_batch_or_a_dict_alike():
    series = padded()
    loader = [
        (*(part[:3] for part in series), torch.zeros(3)),
        dict(zip(("values", "times", "lengths"), (part[3:] for part in series), strict=True)),
    ]
    models = []
    for data in (series, loader, as_batch(*series)):
        torch.manual_seed(0)
        model = rf.RFormer(n_channels=2, n_outputs=3, d_model=16).eval()
        model.fit_scaling(data)
        models.append(model)
    outputs = [model(*series) for model in models]
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])


def test_scaling_comes_from_a_tensor_of_values():
    values, _, _ = padded(missing=0.0)
    outputs = []
    for data in (values, (values,)):
        torch.manual_seed(0)
        model = rf.RFormer(n_channels=2, n_outputs=3, d_model=16).eval()
        model.fit_scaling(data)
        outputs.append(model(values))
    assert torch.equal(*outputs)


def test_the_state_dict_keeps_the_scaling(tmp_path):
    options = {
        "n_channels": 2, "n_outputs": 2, "d_model": 16,
        "tokens": rf.TokenConfig(windows=4, observations=True, static=("age",)),
    }  # fmt: skip
    values, times, lengths = padded()
    static = torch.tensor([[50.0], [60.0], [70.0], [torch.nan], [40.0], [55.0]])
    model = rf.RFormer(**options).eval()
    model.fit_scaling((values, times, lengths, static))
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    again = rf.RFormer(**options).eval()
    again.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    want = model(values, times, lengths, static)
    assert torch.equal(again(values, times, lengths, static), want)


@pytest.mark.parametrize("tokens", [{"windows": {"duration": 1.3}}, {"windows": {"points": 4}}])
@pytest.mark.parametrize("context", [None, 3])
def test_steps_of_a_stream_say_what_the_model_says_of_the_series(tokens, context):
    values, times, lengths = padded()
    config = rf.TokenConfig(**tokens, hold=True, context=context, clock=2, basepoint=True)
    model = rf.RFormer(n_channels=2, n_outputs=3, tokens=config, d_model=16, causal=True).eval()
    model.fit_scaling((values, times, lengths))
    with torch.no_grad():
        whole = model(values, times, lengths)
        state, at = model.new_state(len(values)), torch.zeros(len(values), dtype=torch.int64)
        said = [[] for _ in values]
        column = torch.arange(7)
        while (at < lengths).any():
            where = (at[:, None] + column).clamp(max=values.shape[1] - 1)
            chunk = values.gather(1, where[..., None].expand(-1, -1, 2)), times.gather(1, where)
            state, step = model.step(state, *chunk, (lengths - at).clamp(max=7))
            at = at + step.taken
            for b in step.ended.nonzero()[:, 0].tolist():
                said[b].append(step.output[b])
    for b, outputs in enumerate(said):
        assert len(outputs) >= 1
        torch.testing.assert_close(
            torch.stack(outputs), whole[b, : len(outputs)], atol=1e-5, rtol=0
        )


def test_windows_of_a_stream_end_in_double_precision_and_its_state_keeps_its_types():
    values, times = torch.randn(1, 21, 1), 0.07 * torch.arange(21, dtype=torch.float64)[None]
    tokens = rf.TokenConfig(windows={"duration": 0.1}, hold=True)
    model = rf.RFormer(n_channels=1, n_outputs=2, tokens=tokens, d_model=16, causal=True).eval()
    model.fit_scaling((values, times))
    state, at, ends = model.new_state(1), 0, []
    kinds = {name: x.dtype for name, x in state.items()}
    while at < 21:
        state, step = model.step(state, values[:, at:], times[:, at:])
        ends += [float(step.time)] if step.ended else []
        at += int(step.taken)
        assert {name: x.dtype for name, x in state.items()} == kinds
    np.testing.assert_allclose(ends, 0.1 * np.arange(1, len(ends) + 1), rtol=1e-14)


def test_a_model_of_whole_series_has_no_steps():
    model = rf.RFormer(n_channels=2, n_outputs=3)
    model.fit_scaling(padded())
    with pytest.raises(rf.InputError, match="looks at a series as a whole"):
        model.new_state(1)


def test_gradients_reach_values_and_times():
    values, times, lengths = padded(missing=0.0)
    model = rf.RFormer(n_channels=2, n_outputs=1, d_model=16, task="regression")
    model.fit_scaling((values, times, lengths))
    values, times = values.requires_grad_(), times.requires_grad_()
    model(values, times, lengths).sum().backward()
    assert values.grad.abs().sum() > 0
    assert times.grad.abs().sum() > 0


def test_the_model_of_an_estimator_takes_tensors():
    series = padded(n=30)
    y = np.arange(30) % 2
    batch = as_batch(*series)
    fitted = rf.RFormerClassifier(epochs=1, random_state=0, windows=6).fit(batch, y)
    model = fitted.predictor_.model
    with torch.no_grad():
        found = (model(*series) / fitted.predictor_.calibration).softmax(dim=-1)
    np.testing.assert_allclose(found, fitted.predict_proba(batch), atol=1e-5)


def test_the_whole_model_is_exported_by_torch_itself():
    values, times, lengths = padded()
    model = rf.RFormer(n_channels=2, n_outputs=3, d_model=16).eval()
    model.fit_scaling((values, times, lengths))
    batch, length = torch.export.Dim("batch", min=1), torch.export.Dim("length", min=2)
    shapes = ({0: batch, 1: length}, {0: batch, 1: length}, {0: batch})
    program = torch.export.export(model, (values, times, lengths), dynamic_shapes=shapes)
    other = padded(n=4, longest=17, seed=3)
    torch.testing.assert_close(program.module()(*other), model(*other), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"observations": True}, {"clock": 2, "windows": 5}, {"windows": [0.5, 1.0, 2.0]},
        {"windows": {"duration": 0.7}},
    ],
)  # fmt: skip
def test_compile_takes_the_whole_model_as_one_graph(options):
    series = padded()
    tokens = rf.TokenConfig(**options)
    model = rf.RFormer(n_channels=2, n_outputs=3, d_model=16, tokens=tokens).eval()
    model.fit_scaling(series)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*series), model(*series))


def test_gradients_are_finite_where_a_channel_was_seen_once_or_does_not_move():
    values = torch.ones(3, 12, 1)
    values[0] = torch.randn(12, 1)
    tokens = rf.TokenConfig(observations=True)
    model = rf.RFormer(n_channels=1, n_outputs=1, d_model=8, task="regression", tokens=tokens)
    model.fit_scaling((values,))
    values.requires_grad_()
    model(values).sum().backward()
    assert values.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_model_works_in_the_dtype_of_its_weights(dtype):
    values, times, lengths = padded()
    model = rf.RFormer(n_channels=2, n_outputs=3, d_model=16).eval()
    model.fit_scaling((values.to(dtype), times, lengths))
    want = model(values, times, lengths)
    found = model.to(dtype)(values.to(dtype), times, lengths)
    assert found.dtype == dtype
    torch.testing.assert_close(
        found.float(), want, atol=1e-5 if dtype == torch.float64 else 0.2, rtol=0
    )


def test_a_stream_of_more_windows_than_were_allowed_says_nothing():
    values, times, lengths = padded(n=1, missing=0.0)
    config = rf.TokenConfig(windows={"points": 2}, hold=True)
    model = rf.RFormer(n_channels=2, n_outputs=3, tokens=config, d_model=16, causal=True).eval()
    model.fit_scaling((values, times, lengths))
    state, at, said = model.new_state(1, max_windows=4), 0, []
    while at < int(lengths):
        state, step = model.step(state, values[:, at:], times[:, at:])
        said += [step.output] if step.ended else []
        at += int(step.taken)
    assert torch.stack(said[:4]).isfinite().all()
    assert torch.stack(said[4:]).isnan().all()


def test_labels_of_a_loader_are_not_taken_for_times_or_lengths():
    values, times = torch.randn(2, 10, 1), torch.arange(10.0).expand(2, 10)
    model = rf.RFormer(n_channels=1, n_outputs=2)
    for item in ((values, times, torch.tensor([1, 2])), (values, times, torch.tensor([0, 1]))):
        with pytest.raises(rf.InputError, match="third part of what the loader gives"):
            model.fit_scaling([item])
    with pytest.raises(rf.InputError, match="second part of what the loader gives"):
        model.fit_scaling([(values, torch.tensor([0, 1]))])
    with pytest.raises(rf.InputError, match="times must be"):
        model.fit_scaling([(values, torch.tensor([0.5, 1.5]))])


def test_lengths_of_a_loader_may_be_shorter_than_a_shared_grid():
    values, times = torch.randn(2, 10, 1), torch.arange(10.0).expand(2, 10)
    model = rf.RFormer(n_channels=1, n_outputs=2)
    model.fit_scaling([(values, times, torch.tensor([10, 4]))])
    assert model.scaled


def test_static_covariates_of_another_width_are_refused():
    values, times, lengths = padded()
    tokens = rf.TokenConfig(static=("age", "height"))
    model = rf.RFormer(n_channels=2, n_outputs=2, tokens=tokens)
    for wrong in (None, torch.zeros(6, 1), torch.zeros(6, 5)):
        with pytest.raises(rf.InputError, match="takes 2 static covariates"):
            model.fit_scaling((values, times, lengths, wrong))
    model.fit_scaling((values, times, lengths, torch.randn(6, 2)))
    with pytest.raises(rf.InputError, match="takes 2 static covariates"):
        model(values, times, lengths)
    plain = rf.RFormer(n_channels=2, n_outputs=2)
    plain.fit_scaling((values, times, lengths))
    with pytest.raises(rf.InputError, match="takes no static covariates"):
        plain(values, times, lengths, torch.zeros(6, 1))


def test_a_state_without_scaling_takes_it_away():
    model, fresh = (rf.RFormer(n_channels=2, n_outputs=2) for _ in range(2))
    model.fit_scaling(padded())
    model.load_state_dict(fresh.state_dict())
    with pytest.raises(rf.InputError, match="fit_scaling"):
        model(*padded())


def test_onnx_is_torchs_export_of_the_model_itself(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    values, times, lengths = padded()
    model = rf.RFormer(n_channels=2, n_outputs=3, d_model=16).eval()
    model.fit_scaling((values, times, lengths))
    axes = {0: "batch", 1: "length"}
    with torch.no_grad():
        torch.onnx.export(
            model, (values, times, lengths), tmp_path / "model.onnx", dynamo=True, verbose=False,
            input_names=["values", "times", "lengths"], dynamic_shapes=(axes, axes, {0: "batch"}),
        )  # fmt: skip
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    other = dict(zip(("values", "times", "lengths"), padded(n=4, longest=17, seed=3), strict=True))
    (found,) = session.run(None, {name: x.numpy() for name, x in other.items()})
    with torch.no_grad():
        np.testing.assert_allclose(found, model(**other), atol=1e-5)
