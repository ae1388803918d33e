"""Pictures of documents, with a program in LibreOffice's place, which is slow to start."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from serving.errors import OverloadedError
from serving.server.work.documents import pictures
from serving.server.work.documents.pictures import Pictures
from tests.unit.serving.documents.packages import docx
from tests.unit.serving.echo import served, wait_until

DRAWS = 'while [ "$1" != --outdir ]; do shift; done; echo png > "$2/page.png"; cat "$3" > /dev/null'


def office(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "bin/soffice"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_a_document_has_pictures_where_there_is_a_program_that_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office(tmp_path, DRAWS, monkeypatch)
    with served() as (client, _):
        for name, content, expected in (
            ("a.docx", docx("<w:p><w:r><w:t>Haus</w:t></w:r></w:p>"), 200),
            ("a.txt", b"Haus", 400),
        ):
            form = {"source": "de", "target": "en"}
            id = client.post("/documents", files={"file": (name, content)}, data=form).json()["id"]
            wait_until(lambda id=id: client.get(f"/documents/{id}").json()["state"] == "done")
            assert client.get(f"/documents/{id}").json()["pictures"] is (expected == 200)
            for which in ("before", "after"):
                answer = client.get(f"/documents/{id}/pictures/{which}")
                assert answer.status_code == expected
            if expected == 200:
                assert (answer.content, answer.headers["content-type"]) == (b"png\n", "image/png")


@pytest.mark.parametrize("script", ["sleep 60 & sleep 60", "exit 1", "ulimit -v; kill -9 $$"])
def test_a_program_that_fails_or_hangs_leaves_no_picture(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office(tmp_path, script, monkeypatch)
    monkeypatch.setattr(pictures, "_TIMEOUT_S", 0.5)
    (tmp_path / "a.docx").write_bytes(b"PK")
    begin, picture = time.monotonic(), tmp_path / "before.png"
    assert not asyncio.run(Pictures().draw(tmp_path / "a.docx", "docx", picture))
    assert time.monotonic() - begin < 20
    assert picture.read_bytes() == b""
    again = time.monotonic()
    assert not asyncio.run(Pictures().draw(tmp_path / "a.docx", "docx", picture))
    assert time.monotonic() - again < 0.2  # it is not tried again


def test_few_wait_for_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office(tmp_path, f"sleep 0.2; {DRAWS}", monkeypatch)
    (tmp_path / "a.docx").write_bytes(b"PK")

    async def ask() -> list[object]:
        drawing = Pictures()
        asked = (drawing.draw(tmp_path / "a.docx", "docx", tmp_path / f"{n}.png") for n in range(6))
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(ask())
    assert found[:4] == [True] * 4
    assert all(isinstance(each, OverloadedError) for each in found[4:])


def test_without_the_program_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert not Pictures().can_draw("docx")
