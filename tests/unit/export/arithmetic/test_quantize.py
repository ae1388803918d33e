"""The int8 arithmetic, in PyTorch and in ONNX Runtime, against a slow loop."""

import numpy as np
import onnxruntime
import pytest
import torch

from export.arithmetic.quantize import QuantizedLinear, StaticRange, jittered, quantize_columns
from export.graphs.probe import probe_model


def test_columns_come_back_within_half_a_level() -> None:
    weight = np.random.default_rng(0).normal(size=(37, 11)).astype(np.float32)
    weight[:, 3] = 0.0  # a column of zeros has a scale too
    quantized, scale = quantize_columns(weight)
    assert quantized.dtype == np.int8
    assert np.abs(quantized).max() == 127
    assert np.all(np.abs(quantized * scale - weight) <= scale * 0.5001)


def test_what_was_int8_before_stays_as_it_is() -> None:
    integers = np.random.default_rng(2).integers(-60, 61, (300, 40)).astype(np.int8)
    integers[0], integers[1] = 1, 59  # no smaller levels have a place for these
    weight = integers.astype(np.float32) * np.linspace(0.003, 0.2, 40, dtype=np.float32)
    weight[:, 7] += np.random.default_rng(3).normal(size=300).astype(np.float32) * 0.01
    quantized, scale = quantize_columns(weight)
    others = np.arange(40) != 7
    np.testing.assert_array_equal(quantized[:, others], integers[:, others])
    np.testing.assert_allclose((quantized * scale)[:, others], weight[:, others], rtol=1e-6)
    assert np.abs(quantized[:, 7]).max() == 127


def test_jitter_moves_norms_alone_and_as_little_as_rounding_does() -> None:
    twin = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.LayerNorm(8))
    before = {name: value.clone() for name, value in twin.state_dict().items()}
    moved = jittered(twin).state_dict()
    for name, value in before.items():
        assert torch.equal(twin.state_dict()[name], value)
        assert torch.equal(moved[name], value) == (name != "1.weight")
    assert 1e-8 < float((moved["1.weight"] - before["1.weight"]).abs().max()) < 1e-5


def test_linear_equals_a_slow_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(5, 7, generator=generator), torch.randn(5, generator=generator)
    rows = torch.randn(3, 7, generator=generator)
    found = QuantizedLinear(weight, bias)(rows)
    for m, row in enumerate(rows.tolist()):
        row_scale = max(abs(value) for value in row) / 127
        for n, column in enumerate(weight.tolist()):
            column_scale = max(abs(value) for value in column) / 127
            total = sum(
                round(x / row_scale) * round(w / column_scale)
                for x, w in zip(row, column, strict=True)
            )
            wanted = total * row_scale * column_scale + bias[n].item()
            assert abs(found[m, n].item() - wanted) < 1e-4


def test_probe_finds_this_processor_exact_or_not_at_all() -> None:
    session = onnxruntime.InferenceSession(
        probe_model().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found, wanted = session.run(None, {})
    assert found.shape == wanted.shape == (8, 64)
    assert np.abs(wanted).max() > 127 * 127  # beyond what saturating 16-bit sums keep


@pytest.mark.parametrize("signed", [True, False])
def test_products_of_many_inputs_are_exact_integers_rounded_once(signed: bool) -> None:
    inputs = 3000  # sums of which fp32 does not hold
    generator = torch.Generator().manual_seed(0)
    weight_NK = torch.randint(-127, 128, (4, inputs), generator=generator).float()
    weight_NK[0], weight_NK[0, 1] = 127.0, 1.0  # no smaller levels have a place for these
    product = QuantizedLinear(weight_NK, None)
    product.range = StaticRange(127.0 if signed else 255.0, signed=signed)
    rows = torch.randint(0, 128, (3, inputs), generator=generator).float()
    rows[0] = 127.0 if signed else 255.0
    assert isinstance(product.scale_N, torch.Tensor)
    wanted = (rows.long() @ weight_NK.T.long()).float()
    assert wanted[0, 0] > 2**24
    assert torch.equal(
        product(rows), wanted * (torch.tensor(product.range.scale) * product.scale_N)
    )
