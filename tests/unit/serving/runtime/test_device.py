"""Which bundles a service without a GPU runs, and what it says of the others."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from serving.bundle.folder import parse_manifest
from serving.bundle.manifest import Manifest, Precision
from serving.errors import BundleError, SettingsError
from serving.runtime.device import check_device, runs_on_cpu

BUNDLE = Path(__file__).resolve().parents[4] / "models" / "macaron-de-en"


def bundle_for(target: str, precision: str) -> Manifest:
    return parse_manifest(BUNDLE).model_copy(update={"target": target, "precision": precision})


@pytest.mark.parametrize("device", ["", "auto", "cpu", " CPU "])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_bundles_for_the_cpu_run_whatever_is_set(
    monkeypatch: pytest.MonkeyPatch, device: str, precision: str
) -> None:
    monkeypatch.setenv("MACARON_DEVICE", device)
    check_device(BUNDLE, bundle_for("cpu", precision))


def test_a_bundle_for_cuda_runs_on_the_cpu_only_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MACARON_DEVICE", raising=False)
    for precision in ("fp32", "fp16"):
        with pytest.raises(BundleError) as error:
            check_device(BUNDLE, bundle_for("cuda", precision))
        message = str(error.value)
        assert "\n" not in message
        for part in (
            "is for cuda",
            "CPUExecutionProvider; onnxruntime-gpu is needed",
            "--target cpu",
            "MACARON_DEVICE=cpu",
        ):
            assert part in message
    monkeypatch.setenv("MACARON_DEVICE", "cpu")
    check_device(BUNDLE, bundle_for("cuda", "fp16"))


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_a_bf16_bundle_runs_nowhere_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setenv("MACARON_DEVICE", device)
    with pytest.raises(BundleError, match=r"bf16 .* CPU alone.*--target cpu"):
        check_device(BUNDLE, bundle_for("cuda", "bf16"))


@pytest.mark.parametrize("precision", get_args(Precision))
def test_the_cpu_is_given_just_what_is_said_to_run_there(
    monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    monkeypatch.setenv("MACARON_DEVICE", "cpu")
    found = "runs"
    try:
        check_device(BUNDLE, bundle_for("cuda", precision))
    except BundleError:
        found = "refused"
    assert found == ("runs" if runs_on_cpu(precision) else "refused")


def test_a_device_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACARON_DEVICE", "abacus")
    with pytest.raises(
        SettingsError, match="MACARON_DEVICE must be auto, cpu, cuda, tensorrt, got 'abacus'"
    ):
        check_device(BUNDLE, bundle_for("cuda", "fp16"))


def test_a_bundle_for_the_cpu_is_refused_where_a_gpu_is_demanded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MACARON_DEVICE", "cuda")
    with pytest.raises(
        BundleError, match=r"MACARON_DEVICE=cuda.*--target cuda.*MACARON_DEVICE=auto"
    ):
        check_device(BUNDLE, bundle_for("cpu", "fp32"))
