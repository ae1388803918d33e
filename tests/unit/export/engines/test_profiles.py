"""For which sizes engines are built."""

from __future__ import annotations

import pytest

from export.engines.profiles import choose_sizes
from export.errors import ExportError
from serving.bundle.manifest import Manifest
from tests.unit.serving.bundle.test_manifest import TREE


def manifest(**more: object) -> Manifest:
    return Manifest.model_validate(TREE | more)


def language_model(reach: list[int] | None) -> Manifest:
    sizes = TREE["sizes"] | {"max_source": None, "reach": reach}
    return manifest(task="generate", family="lm", decoder_kind="lm", encoder=None, sizes=sizes)


def test_without_a_profile_sizes_follow_from_the_bundle() -> None:
    sizes = choose_sizes(manifest(search={"beam_size": 4}), None)
    assert sizes.source == (8, 32, 64)  # the toy bundle reads 64 ids
    assert sizes.beam == (1, 4, 16)
    assert sizes.capacities == (64, 128, 256, 512)
    assert sizes.spans()["Q"] == (1, 4, 64)  # a prefix is read 64 tokens at once


def test_a_joint_model_reads_eight_tokens_at_once_and_has_rows_for_positions() -> None:
    spans = choose_sizes(manifest(decoder_kind="joint"), "rows=4,beam=5").spans()
    assert spans["Q"] == (1, 5, 8)
    assert spans["BS"] == (8, 128, 256)


def test_a_language_model_has_no_source_and_caches_as_far_as_its_layers_see() -> None:
    sizes = choose_sizes(language_model([4, 30]), None)
    assert sizes.source is None
    assert sizes.capacities == (64, 128)
    assert choose_sizes(language_model(None), None).capacities[-1] == 1024
    with pytest.raises(ExportError, match="toy is a language model and has no source"):
        choose_sizes(language_model(None), "source=8")


def test_a_profile_narrows_them() -> None:
    sizes = choose_sizes(manifest(), "rows=2:32,source=20,beam=5,capacity=64,96")
    assert sizes.rows == (1, 2, 32)
    assert sizes.source == (8, 24, 24)  # lengths are multiples of 8
    assert sizes.beam == (1, 5, 5)
    assert sizes.capacities == (64, 96)


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ("row=3", r"'row' is not a key; there are rows, source, beam, capacity"),
        ("rows=3,rows=4", r"'rows' is given twice"),
        ("rows=a", r"'rows=a' cannot be read; e\.g\. --profile rows=8:32"),
        ("64", r"'64' is not a key"),
        ("rows=3,4", r"'4' cannot be read"),
        ("rows=9:3", r"rows must be 1 or more, the usual one before the largest, got 9:3"),
        ("rows=0", r"rows must be 1 or more"),
        ("source=72", r"source must be 8 to 64, .*, got 72"),
        ("capacity=60", r"capacity must be rising multiples of 8, got 60"),
        ("capacity=128,64", r"capacity must be rising multiples of 8, got 128,64"),
    ],
)
def test_what_is_no_profile_is_reported(profile: str, message: str) -> None:
    with pytest.raises(ExportError, match=message) as error:
        choose_sizes(manifest(), profile)
    assert "\n" not in str(error.value)
