"""The int8 arithmetic, in PyTorch and in ONNX Runtime, against a slow loop."""

import numpy as np
import onnxruntime
import torch

from export.probe import probe_model
from export.quantize import QuantizedLinear, quantize_columns


def test_columns_come_back_within_half_a_level() -> None:
    weight = np.random.default_rng(0).normal(size=(37, 11)).astype(np.float32)
    weight[:, 3] = 0.0  # a column of zeros has a scale too
    quantized, scale = quantize_columns(weight)
    assert quantized.dtype == np.int8
    assert np.abs(quantized).max() == 127
    assert np.all(np.abs(quantized * scale - weight) <= scale * 0.5001)


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
