"""Which gates of an export the CPU leaves out."""

from __future__ import annotations

from typing import get_args

import pytest

from export.errors import ExportError
from export.gates.gpu import check_tests
from serving.bundle.manifest import Precision
from serving.runtime.device import runs_on_cpu


@pytest.mark.parametrize("precision", get_args(Precision))
def test_test_texts_are_refused_just_where_the_service_would_refuse_the_bundle(
    precision: str,
) -> None:
    check_tests(precision, 0)
    if runs_on_cpu(precision):
        check_tests(precision, 1)
    else:
        with pytest.raises(ExportError, match=f"{precision} cannot be scored .*leave out"):
            check_tests(precision, 1)
