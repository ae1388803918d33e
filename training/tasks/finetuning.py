"""The task of fine-tuning an encoder on labelled text: classes, scores, or vectors of pairs.

Shape letters: B lines, C classes, D features.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from serving.arrays import Floats
from serving.bundle.encoder_tokenizer import EncodedText, EncoderTokenizer
from training.batches.packing import PackedTexts, pack_texts
from training.corpora.labelled import LabelledLine, hold_out, read_sheet, targets
from training.corpora.pairs import read_lines
from training.corpora.teacher_vectors import TeacherVectors
from training.errors import ConfigError, CorpusError
from training.metrics.labels import Figures, class_metrics, matching_metrics, score_metrics
from training.models import TextModel
from training.recipe.config import VOCABULARIES, FineTuningRecipe, LabelledConfig, expand
from training.recipe.encoder_sections import CLASSES
from training.runs.checkpoint import write_atomically
from training.runs.folder import REPORT_FILE, VALIDATION_TABLE, load_encoder
from training.vocabularies.of_run import prepare_word_pieces

logger = logging.getLogger(__name__)

MOST_MATCHED = 2000
"""Largest number of pairs in which each text is searched for among all texts."""
_READ_TOGETHER = 8192
"""Ids of a batch that is read for validation."""


class Example(NamedTuple):
    """A line as the model reads it."""

    inputs: tuple[EncodedText, ...]
    """Both texts for `contrastive`; else one input, which may hold two texts."""
    target: float
    """The number of its class, or its score from 0 to 1."""
    taught: tuple[NDArray[np.float16], ...] = ()
    """The teacher's vector [D] for each text; empty if the teacher has read neither."""


Batch = list[Example] | list[list[Example]]
"""A batch of lines. For `contrastive` it is one group, which cannot be divided because its texts
are compared with each other."""


@dataclass(frozen=True, kw_only=True)
class LabelledBatch:
    """Lines to learn from."""

    texts: tuple[PackedTexts, ...]
    targets_B: Tensor
    taught: tuple[Tensor, ...] = ()
    """[B,D] for each text, rows of 0 where the teacher has not read it; empty without a teacher."""

    @property
    def num_labels(self) -> int:
        """Number of lines."""
        return len(self.targets_B)

    def to(self, device: torch.device) -> LabelledBatch:
        """The same batch on a device; out of pinned memory it is copied while others compute."""
        return LabelledBatch(
            texts=tuple(texts.to(device) for texts in self.texts),
            targets_B=self.targets_B.to(device, non_blocking=True),
            taught=tuple(each.to(device, non_blocking=True) for each in self.taught),
        )

    def pin_memory(self) -> LabelledBatch:
        """The same batch in pinned memory, which a GPU can read directly."""
        return LabelledBatch(
            texts=tuple(texts.pin_memory() for texts in self.texts),
            targets_B=self.targets_B.pin_memory(),
            taught=tuple(each.pin_memory() for each in self.taught),
        )


class LineReader:
    """Turns labelled lines into the model's inputs."""

    def __init__(
        self,
        data: LabelledConfig,
        tokenizer: EncoderTokenizer,
        teacher: TeacherVectors | None = None,
    ) -> None:
        self._data, self._tokenizer, self._teacher = data, tokenizer, teacher

    def examples(self, path: Path, lines: Sequence[LabelledLine]) -> list[Example]:
        """The examples of lines; raises CorpusError, with the line of `path`, for a label that does
        not occur in training."""
        wanted = targets(path, lines, self._data)
        return [
            Example(self.inputs(line.texts), target, own_or_pairs(self._teacher, line.texts))
            for line, target in zip(lines, wanted, strict=True)
        ]

    def inputs(self, texts: tuple[str, ...]) -> tuple[EncodedText, ...]:
        """The ids of a line's texts; for `contrastive` each text is an input of its own."""
        encode = self._tokenizer.encode
        if self._data.kind == "contrastive":
            return tuple(encode(text, truncate=True) for text in texts)
        return (encode(*texts, truncate=True),)


def own_or_pairs(
    teacher: TeacherVectors | None, texts: tuple[str, ...]
) -> tuple[NDArray[np.float16], ...]:
    """The teacher's vector [D] of each text of a line. A text that the teacher has not read gets
    the vector of the other text. Empty if it has read neither, or if there is no teacher."""
    if teacher is None:
        return ()
    found = [teacher.get(text) for text in texts]
    known = [vector for vector in found if vector is not None]
    return tuple(known[0] if vector is None else vector for vector in found) if known else ()


@dataclass(frozen=True, kw_only=True)
class LabelledData:
    """The training and validation data of a fine-tuned encoder; a `training.tasks.task.Task`."""

    recipe: FineTuningRecipe
    train: list[Example]
    swapped: list[Example]
    """The training examples with their two texts exchanged; empty unless `data.symmetric` is
    set."""
    validation: list[Example]
    validation_lines: list[LabelledLine]
    report: dict[str, Any]

    @property
    def digest(self) -> str:
        """A hash of the training lines: a run is resumed on its own only."""
        return _digest(self.train)

    @property
    def validation_digest(self) -> str:
        """A digest of the validation lines; a run can be resumed only on the lines it has begun
        with."""
        return _digest(self.validation)

    def write(self, run: Path) -> None:
        """Write the report on the text, and the validation lines, which export reads."""
        write_atomically(run / REPORT_FILE, json.dumps(self.report, indent=1).encode() + b"\n")
        write_atomically(run / VALIDATION_TABLE, write_table(self.validation_lines).encode())

    def change_after(self, begun: int) -> None:
        """None: the text does not change while an encoder is fine-tuned."""

    def parts(self, begun: int) -> int:
        """An epoch has one."""
        return 1

    def epoch(self, epoch: int, begun: int = 0, part: int = 0) -> list[Batch]:
        """The batches of an epoch, in an order that depends only on (seed, epoch)."""
        data = self.recipe.data
        random = np.random.default_rng((self.recipe.loop.seed, epoch))
        order = random.permutation(len(self.train))
        swaps = random.random(len(self.train)) < 0.5 if self.swapped else np.zeros(len(order), bool)
        examples = [(self.swapped if swaps[n] else self.train)[n] for n in order]
        groups = [
            examples[start : start + data.batch_size]
            for start in range(0, len(examples), data.batch_size)
        ]
        if data.kind != "contrastive":
            return list(groups)
        # A text by itself has nothing to be compared with.
        return [[group] for group in groups if len(group) > 1]

    def collate(self, batch: Batch, device: torch.device) -> LabelledBatch:
        """Tensors of one batch, on a device."""
        return collate_examples(_lines(batch)).to(device)

    def loss(self, model: TextModel, batch: LabelledBatch, smoothing: float) -> Tensor:
        """The loss of a batch, summed over its lines."""
        found = [model.read_packed(*texts.inputs) for texts in batch.texts]
        loss = _loss(self.recipe.data, found, batch.targets_B, smoothing)
        for vectors_BD, taught_BD in zip(found, batch.taught, strict=False):  # or nothing is taught
            loss = loss + self.recipe.data.teacher_weight / 2 * distance(vectors_BD, taught_BD)
        return loss

    @torch.no_grad()
    def validate(self, model: TextModel) -> Figures:
        """Mean loss of a line (for `contrastive` among those of a batch) and the metrics of the
        kind. The model is left in evaluation mode."""
        bf16 = self.recipe.loop.bf16
        found = read_examples(model, self.validation, bf16=bf16)
        return {
            "loss": self._mean_loss(found),
            **measure(self.recipe.data, found, [example.target for example in self.validation]),
        }

    def _mean_loss(self, found: list[Floats]) -> float:
        data, total = self.recipe.data, 0.0
        wanted = torch.tensor([example.target for example in self.validation])
        whole = [torch.from_numpy(column) for column in found]
        for start in range(0, len(wanted), data.batch_size):
            rows = slice(start, start + data.batch_size)
            total += float(_loss(data, [column[rows] for column in whole], wanted[rows], 0.0))
        return total / len(wanted)


def _loss(
    data: LabelledConfig, found: Sequence[Tensor], targets_B: Tensor, smoothing: float
) -> Tensor:
    """The loss of a batch. Classes: cross-entropy. A score from 0 to 1: cross-entropy of the
    logit's logistic. Pairs of vectors: cross-entropy of finding the second text by the first among
    all of the batch, averaged with the reverse direction (in-batch negatives; Gao et al. 2021,
    equation 5)."""
    if data.kind == "contrastive":
        first_BD, second_BD = (nn.functional.normalize(vectors.float()) for vectors in found)
        similarity_BB = first_BD @ second_BD.T * data.similarity_scale
        own_B = torch.arange(len(first_BD), device=first_BD.device)
        both = [
            nn.functional.cross_entropy(each, own_B, reduction="sum")
            for each in (similarity_BB, similarity_BB.T)
        ]
        return (both[0] + both[1]) / 2
    logits_BC = found[0].float()
    if data.kind == "regression":
        return nn.functional.binary_cross_entropy_with_logits(
            logits_BC[:, 0], targets_B.clamp(0.0, 1.0), reduction="sum"
        )
    return nn.functional.cross_entropy(
        logits_BC, targets_B.long(), reduction="sum", label_smoothing=smoothing
    )


def distance(vectors_BD: Tensor, taught_BD: Tensor) -> Tensor:
    """1 less the cosine with the teacher's vector, which has length one, summed over the rows that
    have one (Reimers and Gurevych 2020, equation 1, for vectors of length one)."""
    own_BD = nn.functional.normalize(vectors_BD.float())
    cosines_B = (own_BD * taught_BD.float()).sum(1)
    return (taught_BD.any(1).float() - cosines_B).sum()


def _lines(batch: Batch) -> list[Example]:
    return [example for each in batch for example in (each if isinstance(each, list) else [each])]


def collate_examples(examples: Sequence[Example]) -> LabelledBatch:
    """Tensors of some lines, in the machine's memory."""
    columns = zip(*(example.inputs for example in examples), strict=True)
    return LabelledBatch(
        texts=tuple(
            pack_texts([text.ids for text in column], [text.segments for text in column])
            for column in columns
        ),
        targets_B=torch.tensor([example.target for example in examples]),
        taught=_stack_taught(examples),
    )


def _stack_taught(examples: Sequence[Example]) -> tuple[Tensor, ...]:
    width = next((len(example.taught[0]) for example in examples if example.taught), None)
    if width is None:
        return ()
    nothing = np.zeros(width, np.float16)
    columns = zip(
        *(example.taught or (nothing,) * len(example.inputs) for example in examples), strict=True
    )
    return tuple(torch.from_numpy(np.stack(column)) for column in columns)


@torch.no_grad()
def read_examples(model: TextModel, examples: Sequence[Example], *, bf16: bool) -> list[Floats]:
    """The model's outputs for each input of the examples, each [B,C or D]. The model is left in
    evaluation mode."""
    model.eval()
    device = next(model.parameters()).device
    found: list[Floats] = []
    for column in zip(*(example.inputs for example in examples), strict=True):
        rows = np.empty((len(column), model.width), np.float32)
        for numbers in _together([len(text.ids) for text in column]):
            chosen = [column[number] for number in numbers]
            texts = pack_texts([t.ids for t in chosen], [t.segments for t in chosen]).to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                rows[numbers] = model.read_packed(*texts.inputs).float().cpu().numpy()
        found.append(rows)
    return found


def _together(lengths: Sequence[int]) -> list[list[int]]:
    """Numbers of texts of similar length that are read together."""
    batches: list[list[int]] = []
    room = 0
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if lengths[number] > room:
            batches.append([])
            room = _READ_TOGETHER
        batches[-1].append(number)
        room -= lengths[number]
    return batches


def measure(data: LabelledConfig, found: Sequence[Floats], wanted: Sequence[float]) -> Figures:
    """The metrics of the data's kind, from the model's outputs for each input of the lines and from
    their targets."""
    if data.kind in CLASSES:
        return class_metrics(found[0], [int(target) for target in wanted], data.labels)
    if data.kind == "regression":
        return score_metrics(np.reciprocal(1.0 + np.exp(-found[0][:, 0])), wanted)
    return matching_metrics(found[0], found[1])


def _digest(examples: Sequence[Example]) -> str:
    found = hashlib.sha256()
    for example in examples:
        found.update(repr((example.target, [text.ids for text in example.inputs])).encode())
        for vector_D in example.taught:
            found.update(vector_D.tobytes())
    return found.hexdigest()


def write_table(lines: Sequence[LabelledLine]) -> str:
    """Texts and labels as TSV."""
    rows = ([*line.texts, *([line.label] if line.label else [])] for line in lines)
    return "".join("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)


def read_validation(path: Path, data: LabelledConfig) -> list[LabelledLine]:
    """The lines that `write_table` has written into a run folder."""
    rows = [line.split("\t") for line in read_lines(path)]
    return [
        LabelledLine(number, tuple(row[: data.num_texts]), "".join(row[data.num_texts :]))
        for number, row in enumerate(rows, 1)
    ]


def prepare_labelled(recipe: FineTuningRecipe, run: Path) -> LabelledData:
    """Read and encode the lines; a run folder without a vocabulary gets one.

    Raises CorpusError or ConfigError if that cannot be done.
    """
    data = recipe.data
    train_path = expand(data.train)
    train, validation = read_splits(data)
    if data.kind == "contrastive":
        validation = validation[:MOST_MATCHED]
    validation_path = expand(data.validation or data.train)
    texts = [text for line in train for text in line.texts]
    prepare_word_pieces(recipe, run, texts)
    vocabulary = run / VOCABULARIES["wordpiece"]
    tokenizer = EncoderTokenizer(vocabulary, recipe.model.vocab_size, data.max_length)
    teacher = _read_teacher(recipe)
    reader = LineReader(data, tokenizer, teacher)
    other_order = [
        LabelledLine(line.number, line.texts[::-1], line.label) for line in train if data.symmetric
    ]
    report = {"kind": data.kind, "lines": len(train), "validation_lines": len(validation)}
    if data.labels:
        report["classes"] = len(data.labels)
    logger.info("%d lines to learn, %d to validate on", len(train), len(validation))
    examples = reader.examples(train_path, train)
    if teacher is not None:
        report["taught_lines"] = sum(bool(example.taught) for example in examples)
        logger.info("%d lines have a teacher's vector", report["taught_lines"])
    return LabelledData(
        recipe=recipe,
        train=examples,
        swapped=reader.examples(train_path, other_order),
        validation=reader.examples(validation_path, validation),
        validation_lines=validation,
        report=report,
    )


def _read_teacher(recipe: FineTuningRecipe) -> TeacherVectors | None:
    """The teacher's vectors of a recipe, if it names any. Raises CorpusError if the file cannot be
    read, ConfigError if its width is not the model's."""
    if recipe.data.teacher_vectors is None:
        return None
    path = expand(recipe.data.teacher_vectors)
    teacher = TeacherVectors.read(path)
    if teacher.width != recipe.model.model_dim:
        raise ConfigError(
            f"data.teacher_vectors: vectors of {path} have {teacher.width} numbers, the model's "
            f"have {recipe.model.model_dim}; make the file with --width {recipe.model.model_dim}"
        )
    return teacher


def read_splits(data: LabelledConfig) -> tuple[list[LabelledLine], list[LabelledLine]]:
    """Training and validation lines; raises CorpusError if they cannot be read, or if there are too
    few to learn from or to validate on."""
    train = _read(expand(data.train), data)
    whole = len(train)
    if data.validation is not None:
        validation = _read(expand(data.validation), data)
    else:
        train, validation = hold_out(train, data.held_out_share, classes=data.kind in CLASSES)
    if not validation:
        raise CorpusError(
            f"{data.train}: no line is left to validate on, for each of its {whole} has a label "
            "that no other has; give more lines of a label, or others to validate on with --dev "
            "FILE (data.validation)"
        )
    least = 2 if data.kind == "contrastive" else 1  # a pair is compared with another one
    if len(train) < least:
        raise CorpusError(
            f"{data.train}: at least {least} lines must be left to learn from, got {len(train)} of "
            f"{whole}; give more lines, or others to validate on with --dev FILE (data.validation)"
        )
    return train, validation


def _read(path: Path, data: LabelledConfig) -> list[LabelledLine]:
    return read_sheet(path, data.columns).lines(data.columns, data.num_texts)


def evaluate_labels(path: Path, file: Path, device: str = "cpu") -> dict[str, Any]:
    """The metrics of a fitted encoder, given as a run folder or a checkpoint in one, on another
    table with the same columns.

    Raises CheckpointError or ConfigError if it is not a fitted encoder, and CorpusError, with the
    line, for an error in the table.
    """
    trained = load_encoder(path, device)
    data = trained.recipe.data
    lines = _read(file, data)
    tokenizer = EncoderTokenizer(
        trained.vocabulary, trained.recipe.model.vocab_size, data.max_length
    )
    examples = LineReader(data, tokenizer).examples(file, lines)
    found = read_examples(trained.model, examples, bf16=False)
    figures = measure(data, found, [example.target for example in examples])
    return {"kind": data.kind, "lines": len(lines), **figures}
