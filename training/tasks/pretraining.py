"""The task of pre-training an encoder: masked ids, and whether the second part of a text follows
the first.

Devlin et al. 2019, section 3.1. Shape letters: B inputs, M ids of all, N masked ones, D model.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as FastTokenizer
from torch import Tensor, nn

from training.batches.masking import LEAST_PART, DocumentCorpus, MaskedText
from training.batches.packing import PackedTexts, pack_texts
from training.corpora.pairs import read_lines
from training.corpora.wikitext import clean_wikitext
from training.errors import CorpusError
from training.models import Bert
from training.recipe.config import DocumentFile, PretrainingRecipe, expand
from training.runs.checkpoint import write_atomically
from training.runs.folder import REPORT_FILE, VALIDATION_TEXT
from training.tasks.loss import label_smoothed_loss
from training.vocabularies.of_run import prepare_word_pieces

logger = logging.getLogger(__name__)

_VALIDATION_SEED = 1
"""Validations of all runs have the same masks."""
_ARTICLE = re.compile(r"= [^=].* =")
_ENCODED = 4096
Documents = list[list[str]]
"""The lines of each document, none of them blank."""


@dataclass(frozen=True, kw_only=True)
class MaskedBatch:
    """Inputs of pre-training, with ids to predict."""

    texts: PackedTexts
    places_N: Tensor
    """Places of the masked ids among the M ids."""
    labels_N: Tensor
    follows_B: Tensor | None
    """1 if the second part follows the first, else 0; None if there is no second part."""

    @property
    def num_labels(self) -> int:
        """Masked ids."""
        return len(self.labels_N)

    def to(self, device: torch.device) -> MaskedBatch:
        """The same batch on a device; out of pinned memory it is copied while others compute."""
        follows_B = self.follows_B
        return MaskedBatch(
            texts=self.texts.to(device),
            places_N=self.places_N.to(device, non_blocking=True),
            labels_N=self.labels_N.to(device, non_blocking=True),
            follows_B=None if follows_B is None else follows_B.to(device, non_blocking=True),
        )

    def pin_memory(self) -> MaskedBatch:
        """The same batch in pinned memory, which a GPU can read directly."""
        follows_B = self.follows_B
        return MaskedBatch(
            texts=self.texts.pin_memory(),
            places_N=self.places_N.pin_memory(),
            labels_N=self.labels_N.pin_memory(),
            follows_B=None if follows_B is None else follows_B.pin_memory(),
        )


@dataclass(frozen=True, kw_only=True)
class PretrainingData:
    """The training and validation data of a pre-trained encoder; a `training.tasks.task.Task`."""

    recipe: PretrainingRecipe
    tokenizer: FastTokenizer
    train: DocumentCorpus
    validation: DocumentCorpus
    validation_documents: Documents
    report: dict[str, Any]
    """The report of cleaning: how much was kept and dropped."""

    @property
    def digest(self) -> str:
        """A hash of the training text: a run is resumed on its own only."""
        return self.train.digest

    @property
    def validation_digest(self) -> str:
        """Signature of the validation text; a run can be resumed only on the text it has begun
        with."""
        return self.validation.digest

    def write(self, run: Path) -> None:
        """Write the report of cleaning and the cleaned validation text, one document per line."""
        write_atomically(run / REPORT_FILE, json.dumps(self.report, indent=1).encode() + b"\n")
        text = "".join(f"{' '.join(lines)}\n" for lines in self.validation_documents)
        write_atomically(run / VALIDATION_TEXT, text.encode())

    def change_after(self, begun: int) -> None:
        """None: the text does not change while an encoder is pre-trained."""

    def parts(self, begun: int) -> int:
        """An epoch has one."""
        return 1

    def epoch(self, epoch: int, begun: int = 0, part: int = 0) -> list[list[MaskedText]]:
        """The batches of an epoch, whenever it begins."""
        return cut_by_ids(self.train.epoch(epoch), self.recipe.data.token_budget)

    def collate(self, batch: list[MaskedText], device: torch.device) -> MaskedBatch:
        """Tensors of one batch, on a device."""
        texts = pack_texts([text.ids for text in batch], [text.segments for text in batch])
        firsts = texts.firsts_B.tolist()
        places = [
            torch.from_numpy(text.places.astype("int64")) + first
            for text, first in zip(batch, firsts, strict=True)
        ]
        labels = [torch.from_numpy(text.labels.astype("int64")) for text in batch]
        follows = [text.follows for text in batch if text.follows is not None]
        return MaskedBatch(
            texts=texts,
            places_N=torch.cat(places),
            labels_N=torch.cat(labels),
            follows_B=torch.tensor(follows, dtype=torch.float32) if follows else None,
        ).to(device)

    def loss(self, model: Bert, batch: MaskedBatch, smoothing: float) -> Tensor:
        """The loss of the masked ids, summed. For each masked id it adds the mean loss of the
        inputs' second parts, so that the mean over labels is the sum of both mean losses."""
        masked, following, _ = _losses(model, batch, smoothing)
        if batch.follows_B is None:
            return masked
        return masked + following * (batch.num_labels / len(batch.follows_B))

    @torch.no_grad()
    def validate(self, model: Bert) -> dict[str, float | str]:
        """Perplexity of masked ids, and the share of inputs for which the model predicts correctly
        whether the second part follows; `loss` (nats) is the sum of both losses. The model is left
        in evaluation mode."""
        model.eval()
        device = next(model.parameters()).device
        masked = following = 0.0
        count = 0
        predicted: list[bool] = []
        wanted: list[bool] = []
        inputs = self.validation.epoch(0)
        for inputs_of_batch in cut_by_ids(inputs, self.recipe.data.token_budget):
            batch = self.collate(inputs_of_batch, device)
            with torch.autocast(device.type, torch.bfloat16, enabled=self.recipe.loop.bf16):
                masked_loss, following_loss, odds_B = _losses(model, batch, 0.0)
            masked, following = masked + float(masked_loss), following + float(following_loss)
            count += batch.num_labels
            if batch.follows_B is not None and odds_B is not None:
                predicted += (odds_B > 0).tolist()
                wanted += (batch.follows_B > 0).tolist()
        loss = masked / count
        figures: dict[str, float | str] = {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}
        if wanted:
            from sklearn.metrics import accuracy_score  # slow to import

            figures["loss"] = loss + following / len(wanted)
            figures["next_sentence_accuracy"] = float(accuracy_score(wanted, predicted))
        return figures


def _losses(
    model: Bert, batch: MaskedBatch, smoothing: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Summed losses of masked ids and of second parts, with the log-odds [B] that they follow.

    Only the states of masked ids go through the head.
    """
    x_MD = model.encode_packed(*batch.texts.inputs)[0]
    states_ND = model.masked_states(x_MD[batch.places_N])
    masked = label_smoothed_loss(
        model, states_ND[None], batch.labels_N[None], smoothing, ignored_id=None
    )
    if batch.follows_B is None:
        return masked, masked.new_zeros(()), None
    odds_B = model.next_sentence_logits(x_MD[batch.texts.firsts_B][:, None]).float()
    following = nn.functional.binary_cross_entropy_with_logits(
        odds_B, batch.follows_B, reduction="sum"
    )
    return masked, following, odds_B


def cut_by_ids(inputs: Sequence[MaskedText], budget: int) -> list[list[MaskedText]]:
    """Batches of inputs in their order, of as many ids as fit the budget."""
    batches: list[list[MaskedText]] = []
    room = 0
    for text in inputs:
        if len(text.ids) > room:
            batches.append([])
            room = budget
        batches[-1].append(text)
        room -= len(text.ids)
    return batches


def prepare_pretraining(recipe: PretrainingRecipe, run: Path) -> PretrainingData:
    """Clean the text and make its ids; a run folder without a vocabulary gets one.

    Raises CorpusError or ConfigError if that cannot be done.
    """
    data = recipe.data
    documents: Documents = []
    dropped: Counter[str] = Counter()
    for file in data.train:
        kept, reasons = read_documents(file)
        documents += kept
        dropped.update(reasons)
    if not documents:
        raise CorpusError(f"{data.train[0].file}: no line with words; dropped {dict(dropped)}")
    validation, _ = read_documents(data.validation)
    lines = [line for document in documents for line in document]
    tokenizer = prepare_word_pieces(recipe, run, lines)
    corpora = [
        _corpus(recipe, tokenizer, text, seed, name)
        for text, seed, name in (
            (documents, recipe.loop.seed, data.train[0].file),
            (validation, _VALIDATION_SEED, data.validation.file),
        )
    ]
    report = {
        "documents": len(documents),
        "lines": len(lines),
        "tokens": corpora[0].num_tokens,
        "validation_tokens": corpora[1].num_tokens,
        "dropped": dict(dropped),
    }
    logger.info("%(documents)d documents, %(tokens)d tokens, dropped %(dropped)s", report)
    return PretrainingData(
        recipe=recipe,
        tokenizer=tokenizer,
        train=corpora[0],
        validation=corpora[1],
        validation_documents=validation,
        report=report,
    )


def _corpus(
    recipe: PretrainingRecipe, tokenizer: FastTokenizer, documents: Documents, seed: int, name: str
) -> DocumentCorpus:
    """The ids of documents; raises CorpusError if they make no input."""
    data = recipe.data
    encoded = [encode_lines(tokenizer, lines) for lines in documents]
    encoded = [lines for lines in ([ids for ids in lines if ids] for lines in encoded) if lines]
    if data.next_sentence and len(encoded) < 2:
        raise CorpusError(
            f"{name}: has {len(encoded)} documents, but a second part that does not follow comes "
            "from another document: divide documents by blank lines, or set "
            "data.next_sentence=false"
        )
    corpus = DocumentCorpus(
        encoded,
        vocab_size=recipe.model.vocab_size,
        max_length=data.max_length,
        mask_share=data.mask_share,
        next_sentence=data.next_sentence,
        seed=seed,
    )
    if not corpus.has_inputs:
        raise CorpusError(
            f"{name}: no document has the {2 * LEAST_PART} ids that an input needs; give a longer "
            "text"
        )
    return corpus


def encode_lines(tokenizer: FastTokenizer, lines: list[str]) -> list[list[int]]:
    """The ids of lines, without special ones."""
    found: list[list[int]] = []
    for start in range(0, len(lines), _ENCODED):
        part = lines[start : start + _ENCODED]
        found += [line.ids for line in tokenizer.encode_batch(part, add_special_tokens=False)]
    return found


def read_documents(file: DocumentFile) -> tuple[Documents, dict[str, int]]:
    """The documents of a file, cleaned as its settings say, and the numbers of dropped lines by
    reason.

    Raises CorpusError if the file cannot be read.
    """
    lines = read_lines(expand(file.file))
    dropped: dict[str, int] = {}
    if file.cleaning == "wikitext":
        lines, dropped = clean_wikitext(lines)
    documents: Documents = [[]]
    for line in lines:
        if not line.strip() or (file.cleaning == "wikitext" and _ARTICLE.fullmatch(line)):
            documents.append([])
        if line.strip():
            documents[-1].append(line)
    return [document for document in documents if document], dropped
