"""The precision that nobody has named."""

from __future__ import annotations

import logging

import pytest

from export.bundles.subject import Form
from export.errors import ExportError, ParityError
from export.importing.automatic import write_first
from serving.bundle.manifest import Manifest

MADE = Manifest.model_construct(name="made")


def tried(form: Form, refused: int) -> list[tuple[str, str | None]]:
    """The precisions and activations that are tried where so many lose too much."""
    asked: list[tuple[str, str | None]] = []

    def write(chosen: Form) -> Manifest:
        asked.append((chosen.precision, chosen.activations))
        if len(asked) <= refused:
            raise ParityError("BLEU falls by 3.0 (limit 0.3); no bundle was written")
        return MADE

    assert write_first(write, form) is MADE
    return asked


INT8, WIDE, EXACT = ("int8", None), ("int8", "row16"), ("fp32", None)


@pytest.mark.parametrize(
    ("refused", "wanted", "told"),
    [
        (0, [INT8], "chose int8: it loses less than the limits allow"),
        (
            1,
            [INT8, WIDE],
            "chose int8 with activations of 16 bits: int8 loses too much (BLEU falls",
        ),
        (2, [INT8, WIDE, EXACT], "chose fp32: int8 with activations of 16 bits loses too much"),
    ],
)
def test_it_is_the_smallest_that_loses_little_enough(
    refused: int,
    wanted: list[tuple[str, str | None]],
    told: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    assert tried(Form("auto"), refused) == wanted
    assert told in caplog.messages[-1]
    assert "no bundle was written" not in caplog.text


def test_activations_that_are_named_are_the_only_ones() -> None:
    form = Form("auto", activations="row")
    assert tried(form, 1) == [("int8", "row"), EXACT]


def test_what_not_even_fp32_reaches_is_an_error() -> None:
    def write(_: Form) -> Manifest:
        raise ParityError("logits differ by 1.0 (limit 0.1)")

    with pytest.raises(ParityError, match="logits differ"):
        write_first(write, Form("auto"))


def test_a_gpu_has_a_precision_that_is_named() -> None:
    with pytest.raises(ExportError, match="--precision auto is for --target cpu; for cuda name"):
        write_first(lambda _: MADE, Form("auto", target="cuda"))
