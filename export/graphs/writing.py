"""Writes the ONNX files of a model, and the manifest that describes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from torch import nn

from export.arithmetic.half import HALF_TYPES
from export.arithmetic.quantize import ALIKE, Products
from export.errors import ExportError
from export.graphs.first_step import name_beams_apart
from export.graphs.lowering import lower, lower_for_cuda
from export.graphs.onnx_graph import (
    export_encoder,
    export_language_step,
    export_step,
    export_text_graph,
)
from export.graphs.probe import probe_model
from export.graphs.shared_weights import share_weights
from export.graphs.shortlist import write_shortlist
from serving.bundle.folder import FORMAT_VERSION
from serving.bundle.graph import DType, Graph, Role, Tensor
from serving.bundle.languages import Languages
from serving.bundle.manifest import Activations, Manifest, ModelSizes, Reading, Task, TokenizerFiles
from serving.bundle.shortlist import Shortlist
from serving.search.options import MAX_STEPS
from training.models import (
    CausalLanguageModel,
    DecodingNetwork,
    LanguageModelConfig,
    ModelConfig,
    SentenceEmbedder,
    TextModel,
    TransformerConfig,
    TranslationModel,
)
from training.models.sublayers.embedding import settled
from training.models.sublayers.light_attention import layer_reach

_SOFTMAX = {"Attention", "Softmax"}
"""Attention operators of ONNX Runtime."""

ALLOWED = {"cpu": ("fp32", "int8"), "cuda": ("fp32", "fp16", "bf16", "w8a16")}
"""Supported precisions, by target device."""
HEAD_UNIT = 8
"""Features that ONNX Runtime's memory-efficient attention, the only one with a mask, reads at
once."""
TOKENIZER_FILE, PROBE_FILE, SHARED_FILE = "tokenizer.model", "probe.onnx", "shared.bin"
ENCODER_TOKENIZER = "tokenizer.json"


def check_precision(precision: str, target: str) -> None:
    """Raise ExportError for an unsupported pair of device and precision."""
    if precision not in ALLOWED.get(target, ()):
        pairs = ", ".join(f"{t} {p}" for t, precisions in ALLOWED.items() for p in precisions)
        raise ExportError(
            f"--target {target} --precision {precision} is not supported; use one of: {pairs}"
        )


def check_heads(config: ModelConfig, target: str) -> None:
    """Raise ExportError for head sizes that masked attention does not support on a GPU."""
    size = config.head_width
    if target == "cuda" and size % HEAD_UNIT:
        raise ExportError(
            f"--target cuda needs heads of a multiple of {HEAD_UNIT} features, got {size} "
            f"(num_heads {config.num_heads}); use --target cpu"
        )


def check_caps(config: ModelConfig, target: str) -> None:
    """Raise ExportError for soft caps of attention, which are untested on a GPU."""
    if target == "cuda" and config.attention_soft_cap:
        raise ExportError(
            "--target cuda does not support a soft cap of attention (attention_soft_cap "
            f"{config.attention_soft_cap}); use --target cpu"
        )


def check_groups(config: LanguageModelConfig, target: str) -> None:
    """Raise ExportError for grouped queries, which are untested on a GPU."""
    if target == "cuda" and config.kv_heads != config.num_heads:
        raise ExportError(
            f"--target cuda does not support grouped queries (num_heads {config.num_heads}, "
            f"num_kv_heads {config.kv_heads}); use --target cpu"
        )


def check_shortlist(target: str) -> None:
    """Raise ExportError if bundles for this device cannot have shortlists."""
    if target != "cpu":
        raise ExportError(f"--shortlist needs --target cpu, got {target}; leave it out")


def choose_activations(precision: str, target: str, activations: Activations | None) -> Activations:
    """The requested activations, or static ones for int8; raises ExportError for an unsupported
    choice.

    fp32 has no scales, so `row` has no effect on it.
    """
    check_precision(precision, target)
    if activations in ("static", "row16") and precision != "int8":
        raise ExportError(f"--activations {activations} needs --precision int8, got {precision}")
    return activations or ("static" if precision == "int8" else "row")


def write_graphs(
    model: TranslationModel,
    folder: Path,
    *,
    name: str,
    precision: str,
    target: str = "cpu",
    products: Products = ALIKE,
    shortlist: Shortlist | None = None,
    max_source: int = MAX_STEPS,
) -> Manifest:
    """Write the encoder and step graphs (and the int8 probe) into `folder`.

    Returns the manifest, still without languages, quality and hashes. The model is left in
    evaluation mode. `max_source` counts ids with eos. A `shortlist`, on the CPU only, adds a graph
    that uses it.
    """
    check_precision(precision, target)
    check_heads(model.config, target)
    check_caps(model.config, target)
    model = settled(model.eval())
    form = _Form(precision, target, products)
    encoder, encoder_graph = form.lower(*export_encoder(model))
    step, step_graph = form.lower(*export_step(model))
    step_graph = name_beams_apart(step_graph, step)
    saved = {encoder_graph.file: encoder, step_graph.file: step}
    files = None
    if shortlist is not None:
        files, chooser = write_shortlist(
            model, shortlist, folder, int8=precision == "int8", products=products
        )
        saved[files.step.file] = chooser
    share_weights(list(saved.values()), folder / SHARED_FILE)
    for file, proto in saved.items():
        _save(proto, folder / file)
    _save_probe(folder, precision)
    config = model.config
    table = config.max_positions if isinstance(config, TransformerConfig) else 0
    manifest = _manifest(
        model,
        form,
        name=name,
        task="translate",
        block=config.block if isinstance(config, TransformerConfig) else config.family,
        encoder=encoder_graph,
        step=step_graph,
        sizes={
            "max_source": min(max_source, table or max_source),
            "max_positions": table or None,
            "alignment_layer": model.alignment_layer,
        },
    )
    return manifest.model_copy(update={"shortlist": files})


def write_language_graphs(
    model: CausalLanguageModel,
    folder: Path,
    *,
    name: str,
    precision: str,
    target: str = "cpu",
    products: Products = ALIKE,
    max_positions: int | None = None,
) -> Manifest:
    """Write the graphs of a language model, as `write_graphs` does for translation; it has a step
    graph only. Its length is open unless it has learnt positions or `max_positions` bounds it."""
    check_precision(precision, target)
    check_heads(model.config, target)
    check_groups(model.config, target)
    check_caps(model.config, target)
    model = settled(model.eval())
    form = _Form(precision, target, products)
    step, step_graph = form.lower(*export_language_step(model))
    share_weights([step], folder / SHARED_FILE)
    _save(step, folder / step_graph.file)
    _save_probe(folder, precision)
    reach = [
        None if seen is None else max(seen, needs.ancestors + 1)
        for seen, needs in zip(layer_reach(model.config), model.layer_needs, strict=True)
    ]
    return _manifest(
        model,
        form,
        name=name,
        task="generate",
        block=model.config.block,
        encoder=None,
        step=step_graph,
        sizes={
            "reach": None if None in reach else tuple(reach),  # one layer that sees all keeps all
            "max_positions": max_positions or model.config.max_positions or None,
            "follows": target == "cpu" and _follows(step, model),
        },
    )


def _follows(step: onnx.ModelProto, model: CausalLanguageModel) -> bool:
    """Whether a step may put several tokens into one row (`ModelSizes.follows`). ONNX Runtime's own
    attention may round differently with more queries, and no other operator may combine tokens."""
    needs = model.step_needs
    theirs = _SOFTMAX.intersection(node.op_type for node in step.graph.node)
    return not (theirs or needs.recurrent or needs.ancestors)


def write_text_graph(
    model: TextModel,
    folder: Path,
    *,
    name: str,
    precision: str,
    target: str = "cpu",
    products: Products = ALIKE,
    max_length: int,
    labels: tuple[str, ...] = (),
) -> Manifest:
    """Write the graph of an encoder, as `write_graphs` does for translation; it has one graph, of
    packed texts. With `labels` the outputs are class logits; `max_length` counts special ids."""
    check_precision(precision, target)
    check_heads(model.config, target)
    check_caps(model.config, target)
    role: Role = "class_score" if labels else "vector"
    form = _Form(precision, target, products)
    encoder, graph = form.lower(*export_text_graph(settled(model.eval()), role))
    share_weights([encoder], folder / SHARED_FILE)
    _save(encoder, folder / graph.file)
    _save_probe(folder, precision)
    config = model.config
    reading = Reading(pooling=model.pooling, labels=labels)
    if isinstance(model, SentenceEmbedder):
        reading = Reading(pooling=model.pooling, normalised=model.normalised)
    tree = {
        "format_version": FORMAT_VERSION,
        "name": name,
        "task": "classify" if labels else "encode",
        "family": "bert",
        "decoder_kind": "none",
        "block": config.block,
        "precision": precision,
        "activations": products.activations,
        "target": target,
        "sizes": _sizes(config, model, {"max_source": max_length}),
        "special_ids": None,
        "languages": Languages(source=(), target=()),
        "tokenizer": TokenizerFiles(
            kind="tokenizers", source_file=ENCODER_TOKENIZER, target_file=ENCODER_TOKENIZER
        ),
        "reading": reading,
        "encoder": graph,
        "step": None,
        "probe_file": PROBE_FILE if precision == "int8" else None,
    }
    return Manifest.model_validate(tree)


@dataclass(frozen=True)
class _Form:
    """The arithmetic and the device of graphs."""

    precision: str
    target: str
    products: Products

    def lower(self, proto: onnx.ModelProto, graph: Graph) -> tuple[onnx.ModelProto, Graph]:
        """Lower an exported graph to this form; returns it with its description."""
        flat = frozenset(t.name for t in graph.outputs if t.axes[0] == "M")
        if self.target == "cpu":
            int8 = self.precision == "int8"
            return lower(proto, int8=int8, flat_outputs=flat, products=self.products), graph
        half = HALF_TYPES.get(self.precision)
        if half is not None:
            graph = _with_half_memory(graph, half.manifest)
        tensors = (*graph.inputs, *graph.outputs)
        names = {t.name for t in tensors if half is not None and t.dtype == half.manifest}
        element = onnx.TensorProto.FLOAT if half is None else half.onnx
        return lower_for_cuda(
            proto,
            element,
            half=names,
            flat_outputs=flat,
            exact=self.products.exact,
            int8_weights=half is not None and half.int8_weights,
        ), graph


def _with_half_memory(graph: Graph, dtype: DType) -> Graph:
    """A graph's description with keys, values and source tensors of the 16-bit type.

    States of modules stay fp32: no product and no attention reads them, a step reads few of them,
    and a running sum would be rounded at each position.
    """

    def typed(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        memory = ("self", "source")
        return tuple(
            t.model_copy(update={"dtype": dtype}) if t.role in memory else t for t in tensors
        )

    return graph.model_copy(update={"inputs": typed(graph.inputs), "outputs": typed(graph.outputs)})


def _save_probe(folder: Path, precision: str) -> None:
    """Save for int8 the graph that shows whether a machine computes int8 exactly."""
    if precision == "int8":
        _save(probe_model(), folder / PROBE_FILE)


def _manifest(
    model: DecodingNetwork,
    form: _Form,
    *,
    name: str,
    task: Task,
    block: str,
    encoder: Graph | None,
    step: Graph,
    sizes: dict[str, Any],
) -> Manifest:
    config = model.config
    tree = {
        "format_version": FORMAT_VERSION,
        "name": name,
        "task": task,
        "family": config.family,
        "decoder_kind": model.decoder_kind,
        "block": block,
        "precision": form.precision,
        "activations": form.products.activations,
        "target": form.target,
        "sizes": _sizes(config, model, {"recurrent": model.step_needs.recurrent, **sizes}),
        "languages": Languages(source=(), target=()),
        "tokenizer": TokenizerFiles(
            kind="sentencepiece", source_file=TOKENIZER_FILE, target_file=TOKENIZER_FILE
        ),
        "encoder": encoder,
        "step": step,
        "probe_file": PROBE_FILE if form.precision == "int8" else None,
    }
    return Manifest.model_validate(tree)


def _sizes(config: ModelConfig, model: nn.Module, others: dict[str, Any]) -> ModelSizes:
    return ModelSizes(
        model_dim=config.model_dim,
        num_heads=config.num_heads,
        num_encoder_layers=config.num_encoder_layers,
        num_decoder_layers=config.num_decoder_layers,
        vocab_size=config.vocab_size,
        source_vocab_size=getattr(config, "source_vocab_size", None) or None,
        num_parameters=sum(p.numel() for p in model.parameters()),
        **others,
    )


def _save(model: onnx.ModelProto, path: Path) -> None:
    forget_origin(model)
    path.write_bytes(model.SerializeToString())


def forget_origin(model: onnx.ModelProto) -> None:
    """Drop PyTorch's notes about the origin of each node, which contain local paths."""
    graph = model.graph
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info):
        part.ClearField("metadata_props")
    for tensor in graph.initializer:
        tensor.ClearField("metadata_props")
    for function in model.functions:
        for node in function.node:
            node.ClearField("metadata_props")
