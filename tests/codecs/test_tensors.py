"""torch's tensors: bit for bit, detached, back on their device."""

from __future__ import annotations

import math
import random
import subprocess
import sys

import pytest
import torch

from somatize import codecs
from somatize.errors import NotKeepable, StoreWarning
from somatize.naming import content


def tensors_equal(a, b):
    return (
        type(a) is type(b)
        and a.dtype == b.dtype
        and a.shape == b.shape
        and a.stride() == b.stride()
        and (a.is_conj(), a.is_neg()) == (b.is_conj(), b.is_neg())
        and a.resolve_conj()
        .resolve_neg()
        .contiguous()
        .reshape(-1)
        .view(torch.uint8)
        .equal(b.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8))
    )


DTYPES = [
    getattr(torch, name)
    for name in [
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "uint16",
        "uint32",
        "uint64",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e8m0fnu",
    ]
    if hasattr(torch, name)
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (40, 50)], ids=str)
def test_a_tensor_comes_back_bit_for_bit(back, dtype, shape):
    random_bytes = torch.frombuffer(
        bytearray(random.Random(1).randbytes(math.prod(shape) * dtype.itemsize) or b"x"), dtype=torch.uint8
    )
    if dtype is torch.bool:
        random_bytes %= 2
    tensor = random_bytes[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
    again = back({"t": tensor})["t"]
    assert tensors_equal(again, tensor)
    assert not again.requires_grad
    assert again.is_leaf


def test_a_tensor_comes_back_detached_and_a_slice_alone(back):
    weights = torch.arange(1_000_000.0, requires_grad=True)
    made = (weights * 2)[10:20]
    again = back(made)
    assert torch.equal(again, made.detach())
    assert again.grad_fn is None
    assert not again.requires_grad
    assert len(codecs.dumps(made)) < 400
    assert made.requires_grad
    assert tensors_equal(back(torch.arange(6).reshape(2, 3).T), torch.arange(6).reshape(2, 3).T)
    assert torch.equal(back(torch.tensor([1 + 2j]).conj()), torch.tensor([1 - 2j]))
    assert torch.equal(back(torch.ones(2, 1).expand(2, 3)), torch.ones(2, 3))


BASE = torch.arange(2400.0).reshape(20, 30, 4)
VIEWS = {
    "transposed": BASE.permute(2, 0, 1),
    "channels last": torch.ones(2, 3, 40, 5).to(memory_format=torch.channels_last),
    "channels last of one": torch.ones(2, 1, 40, 5).to(memory_format=torch.channels_last),
    "of every other": BASE[:, ::2, 1:3],
    "a column": BASE[:, 3, 2],
    "a diagonal": BASE[:, :, 0].diagonal(),
    "windows": torch.arange(500).unfold(0, 7, 1),
    "without elements": BASE[:0, ::2],
    "expanded": BASE[0].expand(50, 30, 4),
    "expanded between": BASE[:, :1].expand(20, 9, 4),
    "expanded and turned": BASE[0].t().expand(50, 4, 30),
    "expanded with gaps": BASE[0, :, 0].expand(50, 30),
    "of one element": torch.tensor(3.5, dtype=torch.bfloat16).expand(10, 10),
    "conjugate": (BASE + 1j).conj(),
    "conjugate and turned": (BASE + 1j).conj().permute(2, 1, 0)[::2],
    "negative": (BASE + 1j).conj().imag,
    "small": torch.ones(2, 2).t(),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_a_view_comes_back_with_its_strides(back, kind):
    view = VIEWS[kind]
    again = back([view, 1])[0]
    assert tensors_equal(again, view)
    # Torch shows it in nothing public.
    assert not again._is_view() or again.is_conj() or again.is_neg()
    assert content(again) == content(view)
    assert tensors_equal(codecs.take(memoryview(bytearray(codecs.dumps(view)))), view)


@pytest.mark.parametrize("turn", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_large_view_lies_in_the_memory_that_was_given(turn):
    large = torch.arange(400_000.0).reshape(100, 400, 10).permute(turn)
    written = codecs.dumps(large)
    data = codecs.room(written, len(written))
    data[:] = written
    made = codecs.take(data)
    assert tensors_equal(made, large)
    made.zero_()
    assert data[-1000:] == bytes(1000)


def test_a_loaded_view_can_be_trained(back):
    with torch.no_grad():
        again = back(torch.ones(4, 3).t())
    again += torch.nn.Parameter(torch.ones(3, 4))
    again.sum().backward()


def test_what_is_expanded_is_written_once_and_what_is_scattered_is_refused():
    assert len(codecs.dumps(torch.arange(10).expand(100_000, 10))) < 400
    assert len(codecs.dumps(torch.zeros(1000, 20)[:, 3])) < 4400
    for view, words in {
        torch.arange(1_000_000)[::100_000]: "scattered over 900,001 places",
        torch.arange(100)[::3].unfold(0, 7, 1): "overlap, with gaps between",
    }.items():
        with pytest.raises(NotKeepable, match=rf"value\[1\] .*{words}.*tensor.contiguous\(\)"):
            codecs.dumps([1, view])


def test_a_tensor_with_attributes_is_refused():
    tensor = torch.ones(2)
    tensor.unit = "m"
    with pytest.raises(NotKeepable, match=r"attributes of its own \(unit\)"):
        codecs.dumps({"t": tensor})


def test_a_loaded_tensor_belongs_to_the_caller():
    data = codecs.dumps(torch.zeros(3000))
    codecs.loads(data).add_(1)
    assert codecs.loads(data).sum() == 0
    with torch.inference_mode():
        again = codecs.loads(data)
    assert not again.is_inference()
    again.requires_grad_().sum().backward()


def test_a_tensor_made_in_inference_mode_is_written(back):
    with torch.inference_mode():
        tensor = torch.ones(3)
        inside = back(tensor)
    assert torch.equal(back(tensor), tensor)
    assert torch.equal(inside, tensor)


def test_a_state_dict_comes_back_with_its_metadata(back):
    state = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).state_dict()
    again = back(state)
    assert type(again) is type(state)
    assert list(again) == list(state)
    assert all(torch.equal(again[key], state[key]) for key in state)
    # A state_dict carries it in this attribute.
    assert again._metadata == state._metadata


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there")
def test_a_tensor_of_a_device_that_is_not_there_comes_to_the_cpu_with_one_warning():
    data = codecs.dumps([torch.ones(2), torch.zeros(3)]).replace(b"\xa3cpu", b"\xa3xpu")
    with pytest.warns(StoreWarning, match="xpu") as told:
        value = codecs.loads(data)
    assert len(told) == 1
    assert torch.equal(value[0], torch.ones(2))
    assert value[1].device.type == "cpu"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_tensor_goes_back_to_its_device(back):
    tensor = torch.arange(5, device="cuda")
    again = back([tensor])[0]
    assert again.device == tensor.device
    assert torch.equal(again, tensor)


@pytest.mark.parametrize(
    ("tensor", "word"),
    [
        (torch.eye(3).to_sparse(), "sparse"),
        (torch.empty(2, device="meta"), "meta"),
        (torch.nn.Parameter(torch.ones(2)), "Parameter"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tensor_without_plain_elements_is_refused(tensor, word):
    with pytest.raises(NotKeepable, match=word):
        codecs.dumps([tensor])


def test_neither_numpy_nor_torch_is_loaded_for_plain_values():
    code = (
        "import sys; from somatize import codecs; codecs.loads(codecs.dumps([1, (2, {3: b'x'})]));"
        "assert not {'numpy', 'torch'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
