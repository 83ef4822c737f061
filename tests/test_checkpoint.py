"""Checkpoints: what is saved comes back bit for bit, and any damage is an error with words."""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pytest
import torch

from roughformer.errors import CheckpointError, InputError
from roughformer.util import checkpoint
from roughformer.util.checkpoint import load_checkpoint, save_checkpoint

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
TENSORS = {
    "contiguous": X,
    "tied": X,
    "transposed": X.T,
    "row": X[1],
    "strided": X[::2, ::3],
    "expanded": X[:1].expand(3, 6),
    "zero size": torch.empty(0, 3),
    "scalar": torch.tensor(1.5),
    "integer scalar": torch.tensor(-7),
    "double": X.double(),
    "half": X.half(),
    "bfloat16": X.bfloat16(),
    "bytes": torch.arange(5, dtype=torch.uint8),
    "long": torch.tensor([2**62, -(2**62)]),
    "bool": X > 0,
    "odd floats": torch.tensor([float("nan"), float("inf"), -0.0, 1e-45]),
    "conjugate": torch.complex(X, X + 1).conj(),
    "negative": torch.complex(X, X + 1).conj().imag,
    "parameter": torch.nn.Parameter(X.clone()),
    "a/b.c é": X + 1,
    "": X + 2,
}
CONFIG = {"name": "é\u2028", "sizes": [1, 2.5, None, True], "inner": {"b": 1e-300, "a": -0.0}}


def bits(tensor):
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.flatten().view(torch.uint8).tolist() if plain.numel() else []


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model"
    save_checkpoint(path, CONFIG, {"model": {"w": X, "b": X[0]}, "state": {"n": X[0, 0]}})
    return path


def reseal(path, **changes):
    """A manifest whose own checksum is right, whatever it says."""
    head = json.loads((path / "manifest.json").read_text())
    head.pop("sha256")
    head |= changes
    (path / "manifest.json").write_bytes(checkpoint.seal(head))


# Round trips


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_comes_back_bit_for_bit(name, tmp_path):
    save_checkpoint(tmp_path / "x", {}, {"model": {name: TENSORS[name]}})
    (back,) = load_checkpoint(tmp_path / "x").tensors["model"].values()
    assert same(back, TENSORS[name])
    assert back.is_contiguous()


def test_many_tensors_and_the_configuration_come_back(tmp_path):
    tensors = {"model": TENSORS, "optimiser": {"m": X}, "nothing": {}}
    save_checkpoint(tmp_path / "x", CONFIG, tensors)
    back = load_checkpoint(tmp_path / "x")
    assert back.config == CONFIG
    assert list(back.config["inner"]) == ["b", "a"]
    assert {k: set(v) for k, v in back.tensors.items()} == {k: set(v) for k, v in tensors.items()}
    assert all(same(back.tensors["model"][k], v) for k, v in TENSORS.items())


def test_nothing_at_all_comes_back(tmp_path):
    save_checkpoint(tmp_path / "x", {}, {})
    back = load_checkpoint(tmp_path / "x")
    assert (back.config, back.tensors) == ({}, {})


def test_tensors_that_shared_memory_no_longer_do(tmp_path):
    save_checkpoint(tmp_path / "x", {}, {"m": {"a": X, "b": X}})
    back = load_checkpoint(tmp_path / "x").tensors["m"]
    back["a"].zero_()
    assert same(back["b"], X)


def test_a_module_comes_back(tmp_path):
    one, two = torch.nn.LSTM(3, 4, 2), torch.nn.LSTM(3, 4, 2)
    save_checkpoint(tmp_path / "x", {}, {"model": one.state_dict()})
    two.load_state_dict(load_checkpoint(tmp_path / "x").tensors["model"])
    assert torch.equal(one(X.view(2, 4, 3))[0], two(X.view(2, 4, 3))[0])


def test_the_same_input_gives_the_same_bytes(tmp_path):
    for place, order in (("a", list), ("b", lambda x: reversed(list(x)))):
        tensors = OrderedDict((k, TENSORS[k]) for k in order(TENSORS))
        save_checkpoint(tmp_path / place, CONFIG, {"m": tensors, "n": {}})
    names = sorted(os.listdir(tmp_path / "a"))
    assert names == sorted(os.listdir(tmp_path / "b"))
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_files_are_what_other_tools_expect(saved):
    from safetensors.torch import load_file

    assert same(load_file(saved / "model.safetensors")["w"], X)
    assert json.loads((saved / "config.json").read_text()) == CONFIG
    listed = json.loads((saved / "manifest.json").read_text())["files"]
    assert set(listed) | {"manifest.json"} == set(os.listdir(saved))
    for name, entry in listed.items():
        data = (saved / name).read_bytes()
        assert entry == {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def test_the_caller_keeps_what_was_given(tmp_path):
    module = torch.nn.Linear(2, 2)
    save_checkpoint(tmp_path / "x", {"a": (1, 2)}, {"m": dict(module.named_parameters())})
    assert all(p.requires_grad for p in module.parameters())
    assert load_checkpoint(tmp_path / "x").config == {"a": [1, 2]}  # JSON has lists only


def test_parents_are_made_and_links_followed(tmp_path):
    save_checkpoint(tmp_path / "a" / "b" / "c", {"v": 1}, {})
    os.symlink(tmp_path / "a" / "b" / "c", tmp_path / "latest")
    save_checkpoint(f"{tmp_path}/latest", {"v": 2}, {})
    assert (tmp_path / "latest").is_symlink()
    assert load_checkpoint(tmp_path / "a" / "b" / "c").config == {"v": 2}


def test_importing_it_does_not_load_torch():
    code = "import sys, roughformer.util.checkpoint; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# What cannot be saved


@pytest.mark.parametrize(
    "config", [{"a": [1, float("nan")]}, {"a": np.float32(1)}, {"a": {1, 2}}, {"a": 10**5000}]
)
def test_a_configuration_that_is_not_json_is_refused(config, tmp_path):
    with pytest.raises(InputError, match="config cannot be written as JSON"):
        save_checkpoint(tmp_path / "x", config, {})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (np.ones(3), "must be a tensor"),
        (X.to_sparse(), "must be a dense tensor"),
        (torch.empty(2, device="meta"), "must be a dense tensor with data"),
        (X.to(torch.complex128), r"tensors\['m'\]\['t'\] \(torch.complex128\) does not fit"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused_and_the_old_checkpoint_stays(
    tensor, words, tmp_path
):
    save_checkpoint(tmp_path / "x", {"v": 1}, {"m": {"t": X}})
    with pytest.raises(InputError, match=words):
        save_checkpoint(tmp_path / "x", {"v": 2}, {"m": {"t": tensor}})
    assert load_checkpoint(tmp_path / "x").config == {"v": 1}
    assert os.listdir(tmp_path) == ["x"]


def test_a_directory_that_is_not_a_checkpoint_is_never_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"holds 'thesis.tex', which is not part of a sound"):
        save_checkpoint(tmp_path, {}, {})
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_foreign_file_in_a_checkpoint_is_ignored_when_loading_and_never_removed(saved):
    (saved / "notes.txt").write_text("mine")
    assert load_checkpoint(saved).config == CONFIG
    with pytest.raises(CheckpointError, match=r"notes.txt"):
        save_checkpoint(saved, {}, {})
    assert (saved / "notes.txt").read_text() == "mine"


def test_an_empty_directory_and_one_with_a_browsers_clutter_are_replaced(tmp_path):
    save_checkpoint(tmp_path / "x", {"v": 1}, {})
    (tmp_path / "x" / ".DS_Store").write_text("")
    (tmp_path / "y").mkdir()
    for place in ("x", "y"):
        save_checkpoint(tmp_path / place, {"v": 2}, {})
        assert load_checkpoint(tmp_path / place).config == {"v": 2}


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "x").write_text("a file")
    with pytest.raises(CheckpointError, match="is a file"):
        save_checkpoint(tmp_path / "x", {}, {})
    with pytest.raises(CheckpointError, match="cannot save the checkpoint"):
        save_checkpoint(tmp_path / "x" / "y", {}, {})


# Damage


def test_every_kind_of_file_survives_no_flipped_bit(saved):
    choose = random.Random(0)
    for name in sorted(os.listdir(saved)):
        whole = (saved / name).read_bytes()
        places = range(8 * len(whole))
        few = len(whole) if name == "manifest.json" else 60
        for place in choose.sample(places, min(few, len(places))):
            broken = bytearray(whole)
            broken[place // 8] ^= 1 << place % 8
            (saved / name).write_bytes(broken)
            with pytest.raises(CheckpointError) as caught:
                load_checkpoint(saved)
            assert "\n" not in str(caught.value)
            assert name in str(caught.value) or name == "manifest.json"
        (saved / name).write_bytes(whole)
    assert load_checkpoint(saved).config == CONFIG


NAMES = ["config.json", "manifest.json", "model.safetensors", "state.safetensors"]


@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_longer_empty_or_missing_file_is_named(name, saved):
    whole = (saved / name).read_bytes()
    for broken in (whole[:-1], whole[: len(whole) // 2], b"", whole + b"\n"):
        (saved / name).write_bytes(broken)
        with pytest.raises(CheckpointError, match=rf"{name}' is damaged .*; copy the checkpoint"):
            load_checkpoint(saved)
    (saved / name).unlink()
    with pytest.raises(CheckpointError, match=rf"{name}' is missing; copy the checkpoint"):
        load_checkpoint(saved)
    (saved / name).mkdir()
    with pytest.raises(CheckpointError, match=rf"{name}' cannot be opened"):
        load_checkpoint(saved)
    (saved / name).rmdir()
    os.mkfifo(saved / name)
    with pytest.raises(CheckpointError, match=rf"{name}' is damaged"):
        load_checkpoint(saved)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_sealed_file_that_is_nonsense_is_refused(name, saved):
    data = b"\x80\x04c__builtin__\neval\n."  # a pickle, say
    (saved / name).write_bytes(data)
    files = json.loads((saved / "manifest.json").read_text())["files"]
    files[name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    reseal(saved, files=files)
    with pytest.raises(CheckpointError, match=rf"{name}' is damaged"):
        load_checkpoint(saved)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not a JSON object"),
        ("[]", "is not a JSON object"),
        ("\ud800", "is not a JSON object"),
        ("[" * 100_000, "is not a JSON object"),
        ("{}", "is not the manifest of a roughformer checkpoint"),
        ('{"format": "pt", "version": 1}', "its format is 'pt'"),
        ('{"format": "roughformer-checkpoint"}', "its own SHA-256 differs"),
    ],
)
def test_another_manifest_is_refused(text, words, saved):
    (saved / "manifest.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(saved)


@pytest.mark.parametrize("version", [1, 2, 0, "3", None, float("1e9")])
def test_another_version_is_refused_and_not_overwritten(version, saved):
    reseal(saved, version=version)
    with pytest.raises(CheckpointError, match="install the roughformer that wrote it"):
        load_checkpoint(saved)
    with pytest.raises(CheckpointError, match="not part of a sound checkpoint"):
        save_checkpoint(saved, {}, {})


@pytest.mark.parametrize("files", [{}, [], None, {"config.json": 1}, {"config.json": {"size": 1}}])
def test_a_sealed_manifest_that_lists_no_files_is_refused(files, saved):
    reseal(saved, files=files)
    with pytest.raises(CheckpointError, match="lists files in a wrong way"):
        load_checkpoint(saved)


def test_a_manifest_cannot_lead_out_of_its_directory(saved, tmp_path):
    shutil.copy(saved / "config.json", tmp_path / "outside")
    files = json.loads((saved / "manifest.json").read_text())["files"]
    reseal(saved, files=files | {"../outside": files["config.json"]})
    with pytest.raises(CheckpointError, match="lists files in a wrong way"):
        load_checkpoint(saved)


def test_a_path_that_is_no_checkpoint_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"there is no checkpoint .*nowhere'; check the path"):
        load_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="is not a directory"):
        load_checkpoint(tmp_path / "file")
    with pytest.raises(CheckpointError, match=r"manifest.json' is missing"):
        load_checkpoint(tmp_path / "empty")
