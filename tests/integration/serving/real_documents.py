"""Documents that people wrote, out of packages that are here for other reasons or that `.ci/run`
downloads, with the licence of each."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pysubs2
from docutils.core import publish_string

SOURCES = Path(sys.prefix) / "documents"
"""Where `.ci/run` puts packages in the form in which they are published, with their tests."""


@dataclass(frozen=True)
class Package:
    """Documents of one package."""

    ending: str
    place: str
    """An archive in SOURCES, a file or folder of the system, or a module."""
    licence: str
    names: tuple[str, ...] = ("*",)
    but: tuple[str, ...] = ()
    """Documents that only look like some, or that a reader takes otherwise."""
    made: Callable[[bytes], bytes] = bytes
    """Makes the document of another one, as other programs do."""
    of: str = ""
    """The ending of that other one."""

    def documents(self) -> Iterator[tuple[str, bytes]]:
        """Names and contents; none where the package is not here."""
        suffix = "." + (self.of or self.ending)
        for name, read in _files(self.place):
            wanted = any(fnmatch(name, f"*{each}") for each in self.names)
            if (
                name.endswith(suffix)
                and wanted
                and not any(fnmatch(name, f"*{n}") for n in self.but)
            ):
                yield name, self.made(read())


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, f"*{pattern}") for pattern in patterns)


def _files(place: str) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """The files of a package, each with what reads it."""
    path = Path(place) if place.startswith("/") else SOURCES / f"{place}.tar.gz"
    if path.suffix == ".jar" and path.exists():
        with zipfile.ZipFile(path) as jar:
            yield from ((name, partial(jar.read, name)) for name in jar.namelist())
    elif path.suffix == ".gz" and path.exists():
        with tarfile.open(path) as archive:
            for member in archive:
                if member.size and (file := archive.extractfile(member)):
                    yield member.name, file.read
    elif path.is_dir():
        yield from ((str(file), file.read_bytes) for file in sorted(path.rglob("*.*")))
    # The name of a source archive has a version, and is no module where the archive is not there.
    elif "." not in place.partition("/")[0] and (module := find_spec(place.partition("/")[0])):
        [folder] = module.submodule_search_locations or [""]
        yield from _files(str(Path(folder, place.partition("/")[2]).absolute()))


def _by_docutils(writer: str) -> Callable[[bytes], bytes]:
    def made(content: bytes) -> bytes:
        settings = {
            "report_level": 5,
            "halt_level": 5,
            "embed_stylesheet": False,
            "use_latex_citations": True,
            "legacy_column_widths": False,
        }
        return publish_string(content, writer=writer, settings_overrides=settings)

    return made


def _ass(content: bytes) -> bytes:
    return pysubs2.SSAFile.from_string(content.decode()).to_string("ass").encode()


ODF = "odfpy-1.4.1"
POLIB = "polib-1.2.0"
SAMPLES = "webvtt_py-0.6.0"
REAL = (
    Package("docx", "python_docx-1.2.0", "MIT", but=("tbl-cell-props.docx", "tbl-props.docx")),
    Package("docx", "docx/templates", "MIT"),
    Package("html", "sklearn/datasets/descr", "BSD-3-Clause", made=_by_docutils("html5"), of="rst"),
    Package("ipynb", "nbstripout-0.9.1", "MIT", but=("test_output_types.ipynb",)),
    Package("md", "lm_eval/tasks", "MIT", ("ice/README.md", "glue/README.md", "drop/README.md")),
    Package("odp", ODF, "Apache-2.0"),
    Package("ods", ODF, "Apache-2.0"),
    Package("odt", ODF, "Apache-2.0", but=("nasty.odt", "api-for-odfpy.odt")),
    Package("po", POLIB, "MIT", but=("syntax_error1.po", "word_garbage.po", "save_as_pofile.po")),
    Package("po", "tornado/test", "Apache-2.0"),
    Package("pot", POLIB, "MIT"),
    Package("pptx", "pptx/templates", "MIT"),
    Package("properties", "/usr/share/java/epubcheck.jar", "BSD-3-Clause", ("_de.properties",)),
    # A link of several words has the name of its target, and tables between lines of `=` stay.
    Package("rst", "sklearn/datasets/descr", "BSD-3-Clause", but=("oliv*", "kdd*", "lfw*", "rcv*")),
    Package("rst", POLIB, "MIT"),
    Package("rst", "python_docx-1.2.0", "MIT", ("docs/user/*.rst",)),
    Package("sbv", SAMPLES, "MIT", ("sample.sbv", "two_captions.sbv")),
    Package("srt", SAMPLES, "MIT", ("sample.srt", "styles_colours.srt", "missing_timeframe.srt")),
    Package("ass", SAMPLES, "MIT", ("sample.srt", "styles_colours.srt"), made=_ass, of="srt"),
    Package(
        *("tex", "sklearn/datasets/descr", "BSD-3-Clause"),
        # Two hyphens in a row become a dash, and arguments of docutils' own macros stay.
        but=("twenty_newsgroups.rst", "kddcup99.rst", "rcv1.rst"),
        made=_by_docutils("latex"),
        of="rst",
    ),
    Package("vtt", SAMPLES, "MIT", but=("/invalid*.vtt", "cue_tags.vtt", "you*.vtt", "net*.vtt")),
    Package("xlf", "/usr/share/php/Symfony/Component/Validator", "MIT", (".de.xlf", ".ar.xlf")),
    Package("xlsx", "xlsx2csv-0.8.6", "MIT", but=("formatted_inline_string.xlsx",)),
    Package("yaml", "lm_eval/tasks/bbh/fewshot", "MIT"),
)
