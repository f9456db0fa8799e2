from __future__ import annotations

import copy
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor, nn
from torch.nn import functional

from mixupmp.core.fast import pooled_convolution
from mixupmp.core.fast.pooled_convolution import PooledConvolution, _Workspace, shifted_weight, unshifted_weight


def plain(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
    """The textbook order: convolution with its bias, ReLU, maximum."""
    outputs = functional.conv2d(inputs, layer.weight, layer.bias, layer.stride, layer.padding)
    return functional.max_pool2d(functional.relu(outputs), 2)


def both_ways(layer: PooledConvolution, inputs: Tensor, seed: int) -> list[tuple[Tensor, ...]]:
    """Outputs and gradients in weight, bias and input: by the textbook, by the layer, by its plain path."""
    results = []
    for way in ("textbook", "fast", "slow"):
        own, given_inputs = copy.deepcopy(layer), inputs.detach().clone().requires_grad_(inputs.requires_grad)
        own.fast = way == "fast"
        outputs = plain(own, given_inputs) if way == "textbook" else own(given_inputs)
        outputs.backward(torch.randn(outputs.shape, generator=Generator().manual_seed(seed)))
        gradients = [parameter.grad for parameter in own.parameters()]
        if inputs.requires_grad:
            gradients.append(given_inputs.grad)
        results.append((outputs.detach(), *(gradient for gradient in gradients if gradient is not None)))
    return results


def rows_innermost(inputs: Tensor) -> Tensor:
    """As another such layer hands them on."""
    return inputs.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2)


def agree(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
    """To 1e-6 of each result's own size."""
    return len(one) == len(other) and all(
        float((a - b).abs().max()) <= 1e-6 * max(1.0, float(a.abs().max())) * 4 for a, b in zip(one, other, strict=True)
    )


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 5), channels=st.integers(1, 4), out=st.integers(1, 6), side=st.sampled_from([1, 2, 3, 5]),
    height=st.integers(7, 13), width=st.integers(7, 13), padding=st.integers(0, 1), bias=st.booleans(),
    needs=st.booleans(), lying=st.sampled_from(["plain", "channels last", "rows innermost"]), seed=st.integers(0, 9999),
)  # fmt: skip
def test_fast_path_equals_the_textbook(
    rows: int, channels: int, out: int, side: int, height: int, width: int, padding: int, bias: bool, needs: bool,
    lying: str, seed: int,
) -> None:  # fmt: skip
    generator = Generator().manual_seed(seed)
    layer = PooledConvolution(channels, out, side, padding=padding, bias=bias)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    inputs = torch.randn(rows, channels, height, width, generator=generator)
    if lying == "channels last":
        inputs, layer = (
            inputs.contiguous(memory_format=torch.channels_last),
            layer.to(memory_format=torch.channels_last),
        )
    if lying == "rows innermost":
        inputs = rows_innermost(inputs)
    textbook, fast, slow = both_ways(layer, inputs.requires_grad_(needs), seed)
    assert len(fast) == 2 + bias + needs
    assert agree(textbook, fast)
    assert agree(textbook, slow)


@pytest.mark.parametrize("needs", [False, True])
def test_the_fast_path_is_taken_where_it_can_be(needs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the comparison above is not of one path with itself."""
    calls: list[int] = []
    original = pooled_convolution._PooledProduct.forward
    monkeypatch.setattr(
        pooled_convolution._PooledProduct, "forward", staticmethod(lambda *a: (calls.append(1), original(*a))[1])
    )
    layer = PooledConvolution(1, 6, 5)
    layer(torch.randn(2, 1, 28, 28).requires_grad_(needs))
    with torch.no_grad():
        layer.eval()(torch.randn(2, 1, 28, 28))
    assert len(calls) == 2
    layer.fast = False
    layer(torch.randn(2, 1, 28, 28).requires_grad_(needs))
    assert len(calls) == 2


def test_layers_hand_on_their_memory_order(generator: Generator) -> None:
    """Rows innermost, so that the next layer need not copy; and what they give is the same in any order."""
    first, second = PooledConvolution(1, 6, 5), PooledConvolution(6, 16, 5)
    hidden = first(torch.randn(8, 1, 28, 28, generator=generator))
    assert hidden.permute(1, 2, 3, 0).is_contiguous()
    torch.testing.assert_close(second(hidden), second(hidden.contiguous()))


@pytest.mark.parametrize("size", [(6, 7), (7, 6), (7, 7), (8, 9)])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("channels", [1, 2])
def test_odd_sizes_and_borders(size: tuple[int, int], padding: int, channels: int, generator: Generator) -> None:
    """A border of zeros is kept from step to step: what a step leaves there would be seen in the next."""
    layer = PooledConvolution(channels, 3, 5, padding=padding)
    for _ in range(3):
        inputs = rows_innermost(torch.randn(3, channels, *size, generator=generator)).requires_grad_()
        textbook, fast, _ = both_ways(layer, inputs, 1)
        assert agree(textbook, fast)
        torch.testing.assert_close(layer(inputs), plain(layer, inputs))


def test_room_is_not_shared_by_two_passes_on_the_way(generator: Generator) -> None:
    """Both outputs wait for their gradients; a third pass comes in between."""
    layer, reference = PooledConvolution(1, 3, 5), PooledConvolution(1, 3, 5)
    reference.load_state_dict(layer.state_dict())
    reference.fast = False
    first, second, third = torch.randn(3, 4, 1, 12, 12, generator=generator)
    for own in (layer, reference):
        outputs = own(first).sum() + 2 * own(second).square().sum()
        with torch.no_grad():
            own(third)
        outputs.backward()
    assert torch.allclose(layer.weight.grad, reference.weight.grad, rtol=1e-4, atol=1e-4)  # type: ignore[arg-type]


def test_a_second_backward_pass_is_refused() -> None:
    outputs = PooledConvolution(1, 3, 5)(torch.randn(2, 1, 12, 12)).sum()
    outputs.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second backward"):
        outputs.backward()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own, on its first jvp
def test_a_transform_of_another_layer_takes_the_plain_path_too(generator: Generator) -> None:
    """Laplace over the last layer differentiates that one alone: the convolution's own tensors are not wrapped."""
    layer, head = PooledConvolution(1, 6, 5), nn.Linear(6 * 12 * 12, 3)
    inputs = torch.randn(2, 1, 28, 28, generator=generator)

    def outputs(weight: Tensor) -> Tensor:
        return functional.linear(layer(inputs).flatten(1), weight)

    with torch.no_grad():
        _, slope = torch.func.jvp(outputs, (head.weight,), (torch.ones_like(head.weight),))
        torch.testing.assert_close(slope[:, 0], layer(inputs).flatten(1).sum(1))


def test_transforms_of_torch_func_take_the_plain_path(generator: Generator) -> None:
    layers = [PooledConvolution(1, 3, 5) for _ in range(2)]
    inputs = torch.randn(4, 1, 12, 12, generator=generator)
    parameters, buffers = torch.func.stack_module_state(layers)  # type: ignore[arg-type]
    together = torch.vmap(lambda p, b: torch.func.functional_call(layers[0], (p, b), (inputs,)))(parameters, buffers)
    for layer, outputs in zip(layers, together, strict=True):
        assert torch.allclose(layer(inputs), outputs, atol=1e-6)


@pytest.mark.parametrize("needs", [False, True])
def test_constant_images_get_a_subgradient(needs: bool) -> None:
    """All four places of a window tie. Whichever gets the gradient, the weights see the same constant patch."""
    layer = PooledConvolution(1, 3, 3)
    images = torch.linspace(-1, 1, 4).view(4, 1, 1, 1).expand(4, 1, 8, 8).contiguous()
    textbook, fast, _ = both_ways(layer, images.requires_grad_(needs), 0)
    assert agree(textbook[:3], fast[:3])
    if needs:  # each image's total is what came in, whichever places shared it
        assert torch.allclose(textbook[3].sum((1, 2, 3)), fast[3].sum((1, 2, 3)), atol=1e-5)


def test_ties_between_some_places_keep_the_gradient_whole() -> None:
    """Whole numbers tie often. A valid subgradient has the slope of the function along a direction that keeps ties."""
    generator = Generator().manual_seed(0)
    layer = PooledConvolution(2, 3, 3, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.randint(-1, 2, layer.weight.shape, generator=generator).float())
    images = torch.randint(0, 2, (6, 2, 8, 8), generator=generator).float()
    outputs = layer(images)
    (gradient,) = torch.autograd.grad(outputs.sum(), layer.weight)
    # Homogeneous in the weight: <gradient, weight> is the function itself, for any choice among ties.
    assert float((gradient * layer.weight.detach()).sum()) == pytest.approx(float(outputs.detach().sum()), rel=1e-5)


def test_evaluation_and_training_give_the_same_outputs(generator: Generator) -> None:
    layer = PooledConvolution(1, 6, 5)
    inputs = torch.randn(3, 1, 28, 28, generator=generator)
    trained = layer(inputs)
    with torch.no_grad():
        assert torch.allclose(layer(inputs), trained, atol=1e-6)
    assert torch.allclose(layer.eval()(inputs), trained, atol=1e-6)


@pytest.mark.parametrize(
    "settings_",
    [{"stride": 2}, {"dilation": 2}, {"groups": 2}, {"padding": "same"}, {"padding_mode": "reflect", "padding": 1}],
)
@pytest.mark.parametrize("needs", [False, True])
def test_other_convolutions_take_the_plain_path(
    settings_: dict[str, object], needs: bool, generator: Generator
) -> None:
    layer = PooledConvolution(2, 4, 3, **settings_)  # type: ignore[arg-type]
    inputs = torch.randn(2, 2, 12, 12, generator=generator).requires_grad_(needs)
    expected = functional.relu(functional.max_pool2d(nn.Conv2d.forward(layer, inputs), 2))
    assert torch.allclose(layer(inputs), expected, atol=1e-6)


def test_one_image_without_a_row_dimension(generator: Generator) -> None:
    layer = PooledConvolution(1, 2, 3)
    image = torch.randn(1, 8, 8, generator=generator)
    assert torch.allclose(layer(image), layer(image.unsqueeze(0))[0], atol=1e-6)


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float64])
def test_other_precisions(needs: bool, precision: torch.dtype, generator: Generator) -> None:
    layer = PooledConvolution(1, 2, 3)
    inputs = torch.randn(2, 1, 8, 8, generator=generator)
    expected = layer(inputs)
    if precision == torch.float64:
        outputs = layer.double()(inputs.double().requires_grad_(needs))
    else:
        with torch.autocast("cpu", precision):
            outputs = layer(inputs.requires_grad_(needs))
    outputs.float().sum().backward()
    assert layer.weight.grad is not None
    assert torch.allclose(outputs.float(), expected, atol=0.05 if precision == torch.bfloat16 else 1e-5)


@given(channels=st.integers(1, 3), out=st.integers(1, 3), side=st.sampled_from([1, 3, 5]), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_shifts_patches_and_their_adjoints(channels: int, out: int, side: int, seed: int) -> None:
    generator = Generator().manual_seed(seed)
    images = torch.randn(2, channels, 8, 10, generator=generator)
    weight = torch.randn(out, channels, side, side, generator=generator)
    shifted = shifted_weight(weight)
    workspace = _Workspace(tuple(images.shape), tuple(weight.shape), 0)
    workspace.im2col(images)
    everywhere = functional.conv2d(images, weight)
    products = (shifted @ workspace.columns).view(4, out, workspace.down, workspace.across, 2).permute(0, 4, 1, 2, 3)
    for place, (down, across) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        expected = everywhere[:, :, down::2, across::2][:, :, : workspace.down, : workspace.across]
        assert torch.allclose(products[place], expected, atol=1e-5)
    # <shifted(w), v> = <w, unshifted(v)>, and <columns(x), v> = <x, col2im(v)>
    other = torch.randn(shifted.shape, generator=generator)
    left, right = (shifted * other).sum(), (weight * unshifted_weight(other, weight.shape)).sum()
    assert float(left) == pytest.approx(float(right), abs=1e-4)
    columns = torch.randn(workspace.columns.shape, generator=generator)
    left, right = (workspace.columns * columns).sum(), (images * workspace.col2im(columns)).sum()
    assert float(left) == pytest.approx(float(right), abs=1e-3)


def test_a_workspace_made_in_inference_mode_is_not_kept_for_others(generator: Generator) -> None:
    """A server answers in inference mode; training the same network afterwards must still work."""
    layer = PooledConvolution(1, 6, 5)
    inputs = torch.randn(4, 1, 28, 28, generator=generator)
    for frozen in (True, False):
        layer.requires_grad_(not frozen)
        with torch.inference_mode():
            inside = layer(inputs)
        assert torch.equal(layer(inputs).detach(), inside)
    layer(inputs).sum().backward()
    with torch.inference_mode():
        assert torch.equal(layer(inputs), inside)


def test_threads_may_share_a_layer(generator: Generator) -> None:
    layer = PooledConvolution(1, 6, 5).requires_grad_(False)
    inputs = torch.randn(4, 2, 1, 28, 28, generator=generator)
    expected = [layer(own) for own in inputs]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            answers = threads.map(lambda turn: (turn % 4, layer(inputs[turn % 4])), range(800))
            assert all(torch.equal(answer, expected[which]) for which, answer in answers)
    finally:
        sys.setswitchinterval(before)
