"""An encoder of others as a graph of ONNX, as its users export it.

Shape letters: B texts, S ids of the longest, D features.
"""

from __future__ import annotations

from pathlib import Path

import torch


class _States(torch.nn.Module):
    """A model of `transformers` with positional inputs that returns its states."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, ids_BS: torch.Tensor, mask_BS: torch.Tensor, types_BS: torch.Tensor
    ) -> torch.Tensor:
        """States [B,S,D]."""
        found = self.model(input_ids=ids_BS, attention_mask=mask_BS, token_type_ids=types_BS)
        states: torch.Tensor = found.last_hidden_state
        return states


def export_encoder(source: Path, file: Path, attention: str = "eager") -> None:
    """Write the encoder of a folder of `transformers`, in fp32, from ids [B,S] to states [B,S,D].

    `attention` is the implementation in `transformers` that is traced.
    """
    from transformers import AutoModel

    model = AutoModel.from_pretrained(source, attn_implementation=attention).eval()
    names = ["input_ids", "attention_mask", "token_type_ids"]
    exported = torch.onnx.export(
        _States(model).eval(),
        tuple(torch.ones((2, 8), dtype=torch.int64) for _ in names),
        input_names=names,
        output_names=["states"],
        dynamic_shapes=tuple(dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC) for _ in names),
        dynamo=True,
        verbose=False,
    )
    assert exported is not None
    exported.save(file)
