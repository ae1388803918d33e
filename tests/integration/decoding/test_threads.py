"""Threads of a session: they are quiet when there is nothing to compute."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from serving.translation.translator import Translator

BUNDLE = Path(__file__).resolve().parents[3] / "models" / "macaron-de-en"


def test_threads_do_not_spin_after_a_run() -> None:
    translator = Translator(BUNDLE, threads=2)
    used_s: list[float] = []
    for _ in range(5):
        translator.translate("Guten Morgen, wie geht es dir?")
        before = time.process_time()
        time.sleep(0.05)
        used_s.append(time.process_time() - before)
    # By ONNX Runtime's own default it is most of that time.
    assert statistics.median(used_s) < 0.005
