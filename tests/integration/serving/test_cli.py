"""The verbs of `python -m serving` in this process, with stdin and stdout replaced."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from serving import Classifier, Embedder, Translator
from serving.__main__ import main
from serving.errors import InvalidOptionError, InvalidTextError
from serving.search.options import SearchOptions
from tests.conftest import TinyEncoders
from tests.toy.encoders import LINES

ROOT = Path(__file__).resolve().parents[3]


class Terminal:
    """What a run printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object, text: str | bytes = "") -> tuple[int, str, str]:
        content = text if isinstance(text, bytes) else text.encode()
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        status = main([str(argument) for argument in arguments])
        out, err = self._capsys.readouterr()
        return status, out, err


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capsys)


TEXT = ["dog cat", "", "king apple house key letter car", "   ", "cat", "door garden town"]


def test_lines_keep_their_order_and_blank_lines_stay(terminal: Terminal, tiny_bundle: Path) -> None:
    status, out, err = terminal("translate", tiny_bundle, text="\n".join(TEXT))
    wanted = [result.text for result in Translator(tiny_bundle).translate(TEXT)]
    assert status == 0
    assert out == "".join(f"{line}\n" for line in wanted)
    assert (wanted[0], wanted[1], wanted[3]) == ("dog cat", "", "   ")
    assert err.startswith("6/6 sentences")


def test_windows_line_ends_and_odd_spaces(terminal: Terminal, tiny_bundle: Path) -> None:
    # U+2028 and form feed are no line ends: one line in, one line out.
    status, out, _ = terminal("translate", tiny_bundle, text="dog cat\r\nking\u2028cat\fdog\r\n")
    assert status == 0
    assert out.count("\n") == 2
    assert out.startswith("dog cat\n")


def test_json_and_options(terminal: Terminal, tiny_bundle: Path) -> None:
    options = ["--option", "beam_size=3", "--option", "num_hypotheses=2"]
    _, out, _ = terminal("translate", tiny_bundle, "--json", *options, text="dog cat child")
    result = json.loads(out)
    search = SearchOptions(beam_size=3, num_hypotheses=2)
    wanted = Translator(tiny_bundle).translate("dog cat child", search)[0]
    assert result["text"] == wanted.text
    assert [h["score"] for h in result["hypotheses"]] == [h.score for h in wanted.hypotheses]
    assert len(result["hypotheses"]) == 2


def test_score_agrees_with_the_search(terminal: Terminal, tiny_bundle: Path) -> None:
    best = Translator(tiny_bundle).translate("dog cat child")[0].hypotheses[0]
    _, out, _ = terminal("score", tiny_bundle, text=f"dog cat child\t{best.text}\n\nking\tdoor\n")
    first, blank, last = out.splitlines()
    assert float(first) == pytest.approx(best.cumulative, abs=1e-3)
    assert blank == ""
    assert float(last) < float(first)


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (["score"], b"dog\tcat\n\xff\xfe\n", "line 2 is not UTF-8"),
        (["translate", "--option", "beam_sise=2"], "dog", "did you mean 'beam_size'"),
        (["translate", "--option", "beam_size"], "dog", "KEY=VALUE"),
        (["translate", "--option", "beam_size=0"], "dog", "beam_size must be an integer in [1,"),
        (["translate", "--threads", "0"], "dog", "--threads must be >= 1"),
        (["score"], "dog\tcat\ndog cat\n", "line 2: there must be a tab"),
    ],
)
def test_bad_input_is_one_line_on_stderr(
    terminal: Terminal, tiny_bundle: Path, arguments: list[str], text: str | bytes, message: str
) -> None:
    status, out, err = terminal(arguments[0], tiny_bundle, *arguments[1:], text=text)
    assert status == 1
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("stream", [[], ["--stream"]])
@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\xff\xfe", "line 2 is not UTF-8"),
        (b"cat\x00", "line 2: text must be Unicode without NUL"),
        (b"dog, " * 400, "line 2: text must have at most 255 pieces"),
    ],
)
def test_a_line_that_cannot_be_translated_stays_empty_and_the_others_go_on(
    terminal: Terminal, tiny_bundle: Path, line: bytes, message: str, stream: list[str]
) -> None:
    arguments = ["--no-split", *stream]
    status, out, err = terminal("translate", tiny_bundle, *arguments, text=b"dog\n%s\ncat" % line)
    assert status == 3
    assert out == "dog\n\ncat\n"
    assert message in err


def test_lines_of_several_sentences_are_split_unless_told_otherwise(
    terminal: Terminal, tiny_bundle: Path
) -> None:
    text = "The dog. The cat. " * 60
    status, out, _ = terminal("translate", tiny_bundle, text=text)
    assert status == 0
    assert len(out.split()) >= 120  # of each sentence there is something
    status, out, err = terminal("translate", tiny_bundle, "--no-split", text=text)
    assert (status, out) == (3, "\n")
    assert "at most 255 pieces" in err


@pytest.mark.parametrize(
    ("format", "line", "kept"),
    [
        ("html", '<b class="x">dog</b> cat', '<b class="x">'),
        ("xml", "<title>dog</title>", "<title>"),
        ("markdown", "`code` dog", "`code`"),
        ("text", "dog 07:45 {name}", "{name}"),
    ],
)
def test_formats_of_lines(
    terminal: Terminal, tiny_bundle: Path, format: str, line: str, kept: str
) -> None:
    status, out, _ = terminal("translate", tiny_bundle, "--format", format, text=line)
    assert status == 0
    assert out.count(kept) == 1


def test_a_pipe_that_stays_open_is_answered_line_by_line(tiny_bundle: Path) -> None:
    command = [sys.executable, "-m", "serving", "translate", str(tiny_bundle), "--stream"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in ("dog", "cat", "", "king"):
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{line}\n"
        process.stdin.close()
        assert process.wait(60) == 0


def heed_interrupts() -> None:
    """What a shell starts in the background ignores them, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_ends_in_one_line(tiny_bundle: Path) -> None:
    command = [sys.executable, "-m", "serving", "translate", str(tiny_bundle), "--stream"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        preexec_fn=heed_interrupts,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("dog\n")
        process.stdin.flush()
        assert process.stdout.readline() == "dog\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
        assert (told, process.returncode) == ("interrupted\n", 130)


def test_what_is_no_text_and_no_format_is_named(tiny_bundle: Path) -> None:
    translator = Translator(tiny_bundle)
    with pytest.raises(InvalidOptionError, match="one of text, html, markdown, xml, got 'htm'"):
        translator.translate("dog", format="htm")  # type: ignore[arg-type]
    with pytest.raises(InvalidTextError, match="text must be a string, got NoneType"):
        translator.translate(["dog", None])  # type: ignore[list-item]


def test_a_folder_without_a_bundle(terminal: Terminal, tmp_path: Path) -> None:
    status, _, err = terminal("translate", tmp_path)
    assert status == 1
    assert "manifest.json" in err


@pytest.mark.parametrize("arguments", [{"threads": 0}, {"workers": 0}, {"workers": -1}])
def test_threads_and_workers_are_checked(tiny_bundle: Path, arguments: dict[str, int]) -> None:
    with pytest.raises(InvalidOptionError, match="must be >= 1"):
        Translator(tiny_bundle, **arguments)


def test_each_line_gets_its_vector(terminal: Terminal, tiny_encoders: TinyEncoders) -> None:
    bundle = tiny_encoders.bundles / "tiny-embedder"
    wanted = Embedder(bundle, threads=1).embed(LINES)
    status, out, _ = terminal("embed", bundle, "--threads", 1, text="\n".join(LINES) + "\n")
    assert status == 0
    found = [[float(number) for number in line.split()] for line in out.splitlines()]
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    _, out, _ = terminal("embed", bundle, "--json", text=LINES[0])
    np.testing.assert_allclose(json.loads(out), wanted[0], atol=1e-6)
    status, _, err = terminal("embed", bundle, text="the cat\n\n")
    assert (status, err) == (1, "error: line 2: a text must not be empty\n")
    status, _, err = terminal("embed", bundle, text="the cat " * 20)
    assert status == 1
    assert err.startswith("error: line 1: a text must have at most 24 tokens")
    assert terminal("embed", bundle, "--truncate", text="the cat " * 20)[0] == 0


def test_each_line_gets_its_class(terminal: Terminal, tiny_encoders: TinyEncoders) -> None:
    bundle = tiny_encoders.bundles / "tiny-classifier"
    pair = ("the cat", "a dog sat")
    single, double = Classifier(bundle, threads=1).classify([pair[0], pair])
    status, out, _ = terminal("classify", bundle, text=pair[0])
    assert (status, out) == (0, f"{single[0][0]}\t{single[0][1]:.4f}\n")
    _, out, _ = terminal("classify", bundle, "--pairs", "--json", text="\t".join(pair))
    assert list(json.loads(out).items()) == double
    assert sum(json.loads(out).values()) == pytest.approx(1.0)
    status, _, err = terminal("classify", tiny_encoders.bundles / "tiny-embedder", text="a")
    assert status == 1
    assert "task must be 'classify', got 'encode'" in err
