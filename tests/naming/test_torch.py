from __future__ import annotations

import pytest
import torch

from somatize import Node
from somatize.dag.pieces import Cached, Frozen, Marks
from somatize.errors import Unnameable
from somatize.naming import Namer, content, difference

nn = torch.nn
CALLED = Marks(frozen=Frozen("v1"), cached=Cached())


def test_views_in_c_order_copies_and_grad_do_not_count():
    ones = torch.ones(3)
    same = [ones, torch.ones(4)[:3], torch.ones(3, requires_grad=True), torch.ones(2, 3)[1], torch.ones(3) * 1]
    assert len({content(one) for one in same}) == 1
    with torch.inference_mode():
        assert content(torch.ones(3)) == content(ones)


def test_strides_and_lazy_bits_count():
    grid = torch.arange(24.0).reshape(2, 3, 4)
    for turned in (grid.permute(2, 0, 1), grid.transpose(0, 2), grid[:, ::2]):
        assert content(turned) == content(turned.clone(memory_format=torch.preserve_format).as_strided(
            turned.shape, turned.stride()) if turned.numel() == 24 else turned)  # fmt: skip
        assert content(turned) != content(turned.clone(memory_format=torch.contiguous_format))
    images = torch.ones(2, 3, 4, 5)
    apart = [images, images.to(memory_format=torch.channels_last), torch.ones(3), torch.ones(3, 2)[:, 0]]
    apart += [torch.ones(1).expand(3), torch.ones(1, 3).expand(2, 3), torch.ones(2, 3)]
    one = torch.ones(2, 1, 4, 5)
    apart += [one, one.to(memory_format=torch.channels_last)]
    z = torch.tensor([1 + 2j])
    apart += [z, z.conj(), torch.tensor([1 - 2j]), z.conj().imag, torch.tensor([-2.0])]
    assert len({content(each) for each in apart}) == len(apart)
    assert content(torch.ones(1).expand(1 << 40)) != content(torch.ones(1).expand(1 << 39))
    assert content(torch.zeros(1).expand(1 << 40)) != content(torch.ones(1).expand(1 << 40))


def test_attributes_of_a_tensor_count():
    tagged, other = torch.ones(2), torch.ones(2)
    tagged.unit, other.unit = "m", "km"
    assert len({content(each) for each in (tagged, other, torch.ones(2))}) == 3


def test_dtype_shape_type_and_every_element_count():
    kinds = [
        torch.float32,
        torch.float64,
        torch.bfloat16,
        torch.float16,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.complex64,
    ]
    apart = [torch.zeros(4, dtype=kind) for kind in kinds]
    apart += [
        torch.zeros(2, 2),
        torch.zeros(()),
        torch.zeros(0),
        -torch.zeros(4),
        nn.Parameter(torch.zeros(4)),
        [0.0] * 4,
    ]
    apart += [
        torch.zeros(4).numpy(),
        torch.float32,
        torch.float64,
        torch.device("cpu"),
        torch.device("cuda"),
        torch.Size([4]),
        (4,),
    ]
    assert len({content(one) for one in apart}) == len(apart)
    large = torch.zeros(300, 5000).t()
    other = large.clone()
    assert content(large) == content(other)
    other[4321, 123] = 1
    assert content(large) != content(other)


@pytest.mark.gpu
def test_the_device_does_not_count():
    large = torch.arange(5_000_000.0).reshape(1000, 5000)
    assert content(large) == content(large.cuda()) == content(large.cuda().t().contiguous().t())


def test_what_has_no_row_of_elements_is_refused():
    with pytest.raises(Unnameable, match=r"input\[0\] is a torch.Tensor: a sparse_coo torch tensor"):
        content([torch.zeros(3).to_sparse()])


class Encoder(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        self.layer = nn.Linear(size, size)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.layer(x))


def test_weights_and_the_mode_count_however_they_were_written(name_of):
    torch.manual_seed(0)
    encoder, namer = Encoder(), Namer()
    first = name_of(encoder, namer=namer)
    torch.manual_seed(0)
    again = Encoder()
    assert name_of(again).digest == first.digest
    encoder.eval()
    mode = name_of(encoder, namer=namer)
    assert difference(first.parts, mode.parts) == ["state"]
    encoder.train()
    assert name_of(encoder, namer=namer).digest == first.digest
    encoder.drop.eval()
    part = name_of(encoder, namer=namer)
    encoder.train()
    # The write must be one that torch does not count.
    version = encoder.layer.weight._version
    encoder.layer.weight.data.add_(1)  # which torch does not count
    assert encoder.layer.weight._version == version
    written = name_of(encoder, namer=namer)
    encoder.load_state_dict(Encoder().state_dict())
    loaded = name_of(encoder, namer=namer)
    optimizer = torch.optim.SGD(encoder.parameters(), 0.1)
    encoder(torch.ones(4)).sum().backward()
    optimizer.step()
    stepped = name_of(encoder, namer=namer)
    encoder.drop.p = 0.1
    attribute = name_of(encoder, namer=namer)
    digests = [name.digest for name in (first, mode, part, written, loaded, stepped, attribute)]
    assert len(set(digests)) == len(digests)
    assert difference(stepped.parts, attribute.parts) == ["the modules within"]


def test_what_a_state_is_called_settles_it_but_for_the_mode(name_of):
    one, other = Encoder(), Encoder()
    assert name_of(one, CALLED).digest == name_of(other, CALLED).digest
    assert name_of(one, CALLED).digest != name_of(one, Marks(frozen=Frozen("v2"), cached=Cached())).digest
    assert name_of(one, CALLED).digest != name_of(other.eval(), CALLED).digest


def test_layers_without_state_are_told_apart(name_of):
    linear = nn.Linear(3, 3)
    apart = [nn.Sequential(linear, nn.ReLU()), nn.Sequential(linear, nn.GELU()), nn.Sequential(linear), linear]
    apart += [nn.Sequential(linear, nn.Dropout(0.1)), nn.Sequential(linear, nn.Dropout(0.2))]
    hooked = nn.Sequential(linear, nn.ReLU())
    hooked.register_forward_hook(lambda *_: None)
    assert len({name_of(one).digest for one in [*apart, hooked]}) == len(apart) + 1


class Embed(Node):
    def __init__(self, model, rate=1):
        self._model = model
        self.rate = rate

    def forward(self, x):
        return self._model(x)


class Learned(Node, nn.Module):
    def __init__(self, size, rate=0.5):
        super().__init__()
        self.layer = nn.Linear(size, size)
        self._rate = rate

    def forward(self, x):
        return self.layer(x)


class LearnedToo(nn.Module, Node):
    def __init__(self, size, rate=0.5):
        super().__init__()
        self.layer = nn.Linear(size, size)
        self._rate = rate

    def forward(self, x):
        return self.layer(x)


def test_a_model_given_to_a_node_counts_with_its_weights(name_of):
    model = Encoder()
    node, namer = Embed(model), Namer()
    first = name_of(node, namer=namer)
    assert name_of(Embed(model)).digest == first.digest
    model.layer.weight.data.add_(1)
    second = name_of(node, namer=namer)
    assert difference(first.parts, second.parts) == ["argument `model`"]
    assert name_of(node, CALLED).digest == name_of(Embed(Encoder()), CALLED).digest


@pytest.mark.parametrize("cls", [Learned, LearnedToo])
def test_modules_that_are_nodes_too(cls, name_of):
    import copy
    import pickle

    node = cls(3)
    same = name_of(node).digest
    assert name_of(copy.deepcopy(node)).digest == same
    assert name_of(pickle.loads(pickle.dumps(node))).digest == same
    other = cls(3, rate=0.25)
    other.load_state_dict(node.state_dict())
    assert difference(name_of(node).parts, name_of(other).parts) == ["argument `rate` 0.25 was 0.5"]


def test_without_grad_as_a_decorator(lab, name_of):
    source = """
        import torch
        class Net(torch.nn.Module):
            @torch.no_grad()
            def forward(self, x):
                return x + 1
        """
    first = name_of(lab.module(source).Net())
    assert name_of(lab.module(source).Net()).digest == first.digest
    assert name_of(lab.module(source.replace("x + 1", "x + 2")).Net()).digest != first.digest
