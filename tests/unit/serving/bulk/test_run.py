"""What a run on a whole file refuses before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.bulk.parts import BulkError
from serving.bulk.run import run
from serving.bulk.worker import BulkTask


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_is_not_taken_for_a_file_to_write(tmp_path: Path, force: bool) -> None:
    file, out = tmp_path / "in.txt", tmp_path / "out"
    file.write_text("a\n")
    out.mkdir()
    task = BulkTask(bundle=tmp_path, file=file, columns=("text",), into="translation")
    with pytest.raises(BulkError, match="out is a folder; name the file to write"):
        run(task, out, force=force)
