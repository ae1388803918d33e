"""Writes one model to a temporary folder, in the form that each system loads."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.errors import BenchError
from bench.subjects.ctranslate2 import check_convertible, convert_to_ctranslate2
from bench.subjects.job import ID_MANIFEST, BenchJob, Sources, id_token
from bench.subjects.models import random_model, random_shortlist, random_sources, save_model
from bench.subjects.scenarios import (
    COMPARISONS,
    COMPILED,
    EAGER,
    FORCED_LENGTH,
    GPU_COMPILED,
    GPU_EAGER,
    MAX_LENGTH,
    MAY_BE_MISSING,
    OUR_SHORTLIST,
    PEER_SHORTLIST,
    SHAPES,
    Comparison,
    Setting,
    System,
)
from export.arithmetic.activation_ranges import measure_translation_ranges, search_from
from export.arithmetic.half import fit_half
from export.arithmetic.quantize import Products, StaticRange, quantized_twin
from export.engines.engine import build_engines
from export.errors import ExportError
from export.graphs.shortlist import read_shortlist
from export.graphs.writing import TOKENIZER_FILE, write_graphs
from serving.bundle.folder import write_manifest
from serving.bundle.languages import Languages
from serving.bundle.shortlist import Shortlist
from serving.bundle.tokenizer import Tokenizer
from serving.errors import BundleError
from serving.search.beams.sentence import Sentence
from serving.search.ids import EOS_ID
from training.corpora.pairs import read_pairs
from training.models import PRESETS, Transformer, TranslationModel
from training.runs.folder import load_trained

RANDOM_SENTENCES = 64
_RANGE_SENTENCES = 16
_LABEL = "subject.txt"
_ENGINES = "capacity=64,128,256"
"""The cache slots that TensorRT engines are built for; larger sizes run by the graphs."""


@dataclass(frozen=True)
class DecodedModel:
    """The model and the sentences that every system decodes."""

    name: str
    model: TranslationModel
    sources: Sources
    references: list[str]
    """Empty for a random model."""
    tokenizer: Tokenizer | None
    """The tokenizer; None for a random model, which takes ids."""
    languages: tuple[str, str] = ("", "")
    shortlist: Shortlist | None = None
    """The shortlist for the systems that support one."""
    compiled: bool = False
    """Whether compiled PyTorch is measured too."""
    device: str = "cpu"
    """`cpu` or `cuda`, for all systems."""

    @property
    def systems(self) -> tuple[System, ...]:
        """The systems that can run the model, including compiled ones and shortlists if
        requested."""
        systems = self.comparison.systems
        if self.compiled:
            pair = (GPU_EAGER, GPU_COMPILED) if self.device == "cuda" else (EAGER, COMPILED)
            systems = (*pair, *(s for s in systems if s != pair[0]))
        if self.shortlist is None:
            return systems
        with_lists = (OUR_SHORTLIST, PEER_SHORTLIST)
        return (*systems, *(s for s in with_lists if replace(s, shortlist=False) in systems))

    @property
    def comparison(self) -> Comparison:
        """The systems that can run the model, and its requirements."""
        return COMPARISONS[self.model.decoder_kind, self.device]

    def ids(self, source: str | list[int]) -> list[int]:
        """The ids of a source, with eos at the end."""
        if isinstance(source, str):
            assert self.tokenizer is not None
            return [*self.tokenizer.encode(source), EOS_ID]
        return source

    @property
    def forced(self) -> bool:
        """Whether every output has the maximum length, because the model never generates eos."""
        return self.tokenizer is None

    @property
    def max_length(self) -> int:
        """Largest number of generated tokens, eos included."""
        return FORCED_LENGTH if self.forced else MAX_LENGTH


def random_subject(
    shape: str, seed: int, sentences: int = RANDOM_SENTENCES, *, shortlist: bool = False
) -> DecodedModel:
    """A random model of a shape, and random sources."""
    preset, changes = SHAPES[shape]
    model = random_model(replace(PRESETS[preset], **changes), seed)
    sources = random_sources(model.config.vocab_size, sentences, seed)
    subject = DecodedModel(f"shape {shape}, random weights, seed {seed}", model, sources, [], None)
    if shortlist:
        subject = replace(subject, shortlist=random_shortlist(model.config.vocab_size, seed))
    return subject


def trained_subject(
    run: Path, source: Path, reference: Path, *, shortlist: bool = False
) -> DecodedModel:
    """The model of a run and a parallel text, without pairs whose source is blank.

    A `shortlist` is learnt from the run's training text.

    Raises BenchError for a block that the rivals do not support and for a text that is entirely
    blank, and the errors of reading the run and the text.
    """
    trained = load_trained(run)
    if isinstance(trained.model, Transformer):
        check_convertible(trained.model.config)
    data = trained.recipe.data
    if data.is_multilingual:
        raise BenchError(
            f"{run}: its model translates in {len(data.directions)} directions, which the rivals "
            "are not known; give the run of a model of one"
        )
    pairs = [pair for pair in read_pairs(source, reference) if pair[0].strip()]
    if not pairs:
        raise BenchError(f"{source}: every line is blank")
    return DecodedModel(
        name=f"{trained.recipe.name}, {source.name}, {len(pairs)} sentences",
        model=trained.model,
        sources=[text for text, _ in pairs],
        references=[text for _, text in pairs],
        tokenizer=trained.tokenizer,
        languages=(data.source_language, data.target_language),
        shortlist=read_shortlist(trained.recipe, trained.tokenizer) if shortlist else None,
    )


def write_materials(
    subject: DecodedModel, systems: Sequence[System], folder: Path
) -> dict[System, str]:
    """Write the files that the jobs of `job_for` load, unless they exist. Returns the systems whose
    library is missing on this machine, with the library's name.

    Raises BenchError for a folder that holds the files of another subject.
    """
    missing: dict[System, str] = {}
    lacking: dict[Path, str] = {}
    folder.mkdir(parents=True, exist_ok=True)
    label, own = folder / _LABEL, f"{subject.name}, weights {_fingerprint(subject.model)}"
    kept = label.read_text(encoding="utf-8") if label.exists() else own
    if kept != own:
        raise BenchError(
            f"--materials must name a folder of one model; {folder} has {kept!r}, not {own!r}; "
            "name another folder"
        )
    label.write_text(own, encoding="utf-8")
    if subject.tokenizer is not None:
        (folder / TOKENIZER_FILE).write_bytes(subject.tokenizer.serialized())
    for system in systems:
        place = folder / folder_name(system)
        if place in lacking:
            missing[system] = lacking[place]
        elif not place.exists():  # with and without CUDA graphs
            part = folder / f"{place.name}.part"  # leftovers of an interrupted run
            shutil.rmtree(part, ignore_errors=True)
            part.unlink(missing_ok=True)
            try:
                _write_model(subject, part, system)
                part.rename(place)
            except (BundleError, ExportError, ImportError) as error:
                if system not in MAY_BE_MISSING:
                    raise
                missing[system] = lacking[place] = str(error)
    return missing


def _fingerprint(model: TranslationModel) -> str:
    """A signature of the weights, because a run may continue under the same name."""
    found = hashlib.sha256()
    for tensor in model.state_dict().values():
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def _write_model(subject: DecodedModel, place: Path, system: System) -> None:
    """Write the model for a system. Raises ImportError if CTranslate2 is needed and not
    installed."""
    if system.kind in ("eager", "compiled"):
        save_model(subject.model, place)
    elif system.kind == "ctranslate2":
        assert isinstance(subject.model, Transformer)
        vocabulary = _vocabulary(subject)
        shortlist = subject.shortlist if system.shortlist else None
        convert_to_ctranslate2(
            subject.model, vocabulary, place, system.precision, shortlist=shortlist
        )
    else:
        place.mkdir()
        _write_bundle(subject, place, system)


def job_for(system: System, setting: Setting, subject: DecodedModel, folder: Path) -> BenchJob:
    """The job of a worker for a system with a thread setting."""
    return BenchJob(
        kind=system.kind,
        folder=str(folder / folder_name(system)),
        precision=system.precision,
        workers=max(setting.workers, system.streams),
        threads=setting.threads,
        tokenizer_file=None if subject.tokenizer is None else str(folder / TOKENIZER_FILE),
        shortlist=system.shortlist,
        device=system.device,
        graphs=system.graphs,
        streams=system.streams,
    )


def _write_bundle(subject: DecodedModel, folder: Path, system: System) -> None:
    """Write a bundle; without a tokenizer, only its graphs and their manifest."""
    exact: frozenset[bytes] = frozenset()
    ranges = static_ranges(subject) if system.precision == "int8" else None
    if system.on_gpu:
        fit = fit_half(
            subject.model, system.precision, lambda model: search_from(model, _few(subject))
        )
        exact = fit.exact
    manifest = write_graphs(
        subject.model,
        folder,
        name="bench",
        precision=system.precision,
        target="cuda" if system.on_gpu else "cpu",
        products=Products(ranges, exact),
        shortlist=subject.shortlist if system.shortlist else None,
    )
    if system.device == "tensorrt":
        engines = build_engines(folder, manifest, folder, _ENGINES)
        manifest = manifest.model_copy(update={"engines": engines})
    if subject.tokenizer is None:
        (folder / ID_MANIFEST).write_text(manifest.model_dump_json())
        return
    (folder / TOKENIZER_FILE).write_bytes(subject.tokenizer.serialized())
    source, target = subject.languages
    languages = Languages(source=(source,), target=(target,))
    write_manifest(folder, manifest.model_copy(update={"languages": languages}))


def static_ranges(subject: DecodedModel) -> dict[bytes, StaticRange]:
    """The activation scales of a subject's int8 bundle, from some of its sources."""
    twin = quantized_twin(subject.model)
    return measure_translation_ranges(twin, _few(subject), subject.max_length)


def _few(subject: DecodedModel) -> list[Sentence]:
    """The first sources, for calibrating int8 and fp16."""
    return [Sentence(subject.ids(source)) for source in subject.sources[:_RANGE_SENTENCES]]


def folder_name(system: System) -> str:
    """The folder of a system's files."""
    parts = [system.kind, system.precision, *(["shortlist"] if system.shortlist else [])]
    return "-".join([*parts, *([system.device] if system.on_gpu else [])])


def _vocabulary(subject: DecodedModel) -> list[str]:
    size = subject.model.config.vocab_size
    if subject.tokenizer is None:
        return [id_token(token_id) for token_id in range(size)]
    return subject.tokenizer.pieces(list(range(size)))
