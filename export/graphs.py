"""A model to the ONNX files of a bundle, and to the manifest that describes them."""

from __future__ import annotations

from pathlib import Path

import onnx

from export.errors import ExportError
from export.lowering import lower, probe_model
from export.onnx_graph import export_encoder, export_step
from serving.bundle import FORMAT_VERSION, Languages, Manifest, Sizes, TokenizerFiles
from serving.options import MAX_STEPS
from training.models import Model, TransformerConfig

ALLOWED = {"cpu": ("fp32", "int8")}
"""Precisions by target device."""
TOKENIZER_FILE, PROBE_FILE = "tokenizer.model", "probe.onnx"


def check_precision(precision: str, target: str) -> None:
    """Raise ExportError for a pair that cannot be exported."""
    if precision not in ALLOWED.get(target, ()):
        pairs = ", ".join(f"{t} {p}" for t, precisions in ALLOWED.items() for p in precisions)
        raise ExportError(
            f"--target {target} --precision {precision} is not supported; use one of: {pairs}"
        )


def write_graphs(
    model: Model, folder: Path, *, name: str, precision: str, max_source: int = MAX_STEPS
) -> Manifest:
    """Write the encoder and step graphs (and the int8 probe) into `folder`.

    Returns their manifest, which knows neither languages, quality nor hashes yet. The model is left
    in evaluation mode. `max_source` counts ids with eos.
    """
    check_precision(precision, "cpu")
    model.eval()
    int8 = precision == "int8"
    encoder, encoder_graph = export_encoder(model)
    step, step_graph = export_step(model)
    _save(lower(encoder, int8=int8), folder / encoder_graph.file)
    flat = frozenset(t.name for t in step_graph.outputs if t.axes[0] == "M")
    step = lower(step, int8=int8, flat_outputs=flat)
    _save(step, folder / step_graph.file)
    if int8:
        _save(probe_model(), folder / PROBE_FILE)
    config = model.config
    return Manifest.model_validate(
        {
            "format_version": FORMAT_VERSION,
            "name": name,
            "task": "translate",
            "family": config.family,
            "decoder_kind": model.decoder_kind,
            "block": config.block if isinstance(config, TransformerConfig) else config.family,
            "precision": precision,
            "target": "cpu",
            "sizes": Sizes(
                model_dim=config.model_dim,
                num_heads=config.num_heads,
                num_encoder_layers=config.num_encoder_layers,
                num_decoder_layers=config.num_decoder_layers,
                vocab_size=config.vocab_size,
                max_source=max_source,
                num_parameters=sum(p.numel() for p in model.parameters()),
            ),
            "languages": Languages(source=(), target=()),
            "tokenizer": TokenizerFiles(
                kind="sentencepiece", source_file=TOKENIZER_FILE, target_file=TOKENIZER_FILE
            ),
            "encoder": encoder_graph,
            "step": step_graph,
            "probe_file": PROBE_FILE if int8 else None,
        }
    )


def _save(model: onnx.ModelProto, path: Path) -> None:
    path.write_bytes(model.SerializeToString())
