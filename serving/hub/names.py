"""Model names: what a user may write in place of a bundle's folder."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from serving.errors import ModelNameError

FORMS = (
    "OWNER/NAME of a hub (with @REVISION, or :FILE.gguf), firefox:FROM-TO, argos:FROM-TO, or "
    "https://HOST/FILE#sha256=HASH"
)
"""Forms of a name, for messages."""
_PART = r"[A-Za-z0-9](?:[\w.-]*\w)?"
_HUB = re.compile(
    r"(?:https?://(?:www\.)?(?:huggingface|hf)\.co/)?"
    rf"(?P<repository>{_PART}/{_PART})/?"
    r"(?:@(?P<revision>[\w.][\w./-]*))?(?::(?P<file>[\w./-]+\.gguf))?"
)
_PAIR = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z]+)*-[A-Za-z]{2,3}(?:[-_][A-Za-z]+)*")
_SHA256 = re.compile(r"sha256=([0-9a-fA-F]{64})")
_UNSAFE = re.compile(r"[^\w.-]+")
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)
"""Names that cannot be files on Windows, whatever follows a dot."""
_LONGEST = 100


@dataclass(frozen=True)
class HubName:
    """A repository on the hub of Hugging Face, or of a mirror."""

    repository: str
    """Name of the repository, OWNER/NAME."""
    revision: str | None = None
    """A branch, a tag or a commit; None selects the main branch."""
    file: str | None = None
    """A GGUF file, for repositories with several."""

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return self.repository + revision + (f":{self.file}" if self.file else "")

    @property
    def title(self) -> str:
        """The name of its bundle."""
        return Path(self.file).stem if self.file else self.repository.rpartition("/")[2]


@dataclass(frozen=True)
class FirefoxName:
    """A student that Mozilla publishes for Firefox."""

    pair: str
    """Source and target as Mozilla's list has them, joined by a hyphen: `de-en`."""

    def __str__(self) -> str:
        return f"firefox:{self.pair}"

    @property
    def title(self) -> str:
        """The name of its bundle."""
        return f"firefox-{self.pair}"


@dataclass(frozen=True)
class ArgosName:
    """A package of Argos Translate."""

    pair: str
    """Source and target as the index has them, joined by a hyphen: `de-en`."""
    sha256: str | None = None
    """The expected hash of the package, because the index has none."""

    def __str__(self) -> str:
        return f"argos:{self.pair}" + (f"#sha256={self.sha256}" if self.sha256 else "")

    @property
    def title(self) -> str:
        """The name of its bundle."""
        return f"argos-{self.pair}"


@dataclass(frozen=True)
class UrlName:
    """A file at a URL, an archive or a single-file model, which must match its hash."""

    url: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.url}#sha256={self.sha256}"

    @property
    def file(self) -> str:
        """The file's name, without characters that file systems may not accept."""
        return _safe(urlsplit(self.url).path.rpartition("/")[2])

    @property
    def title(self) -> str:
        """The name of its bundle: the file's name without its extensions."""
        return re.split(r"\.(?:t|zip|argosmodel|gguf|pt|npz|bin)", self.file)[0] or "model"


Name = HubName | FirefoxName | ArgosName | UrlName


def parse_name(given: str) -> Name | None:
    """The name in a text; None if the text can only be a path.

    Raises ModelNameError for a text that begins like a name and is not one.
    """
    kind, colon, rest = given.partition(":")
    if colon and kind in ("firefox", "argos"):
        return _of_pair(kind, rest)
    if hub := _HUB.fullmatch(given):
        return HubName(hub["repository"], hub["revision"], hub["file"])
    if given.startswith(("https://", "http://")):
        return _of_url(given)
    return None


def named(given: str) -> Name:
    """The name in a text. Raises ModelNameError if it is not a name."""
    name = parse_name(given)
    if name is None:
        raise ModelNameError(f"{given}: is not a model name; it must be {FORMS}")
    return name


def name_here(given: str) -> Name | None:
    """The name that a text stands for on this machine; None for an existing path, and for text that
    does not have the form of a name.

    Raises ModelNameError as `parse_name` does, and for OWNER/NAME if OWNER is a local folder
    without NAME, so that a typo in a path is not looked up on a hub.
    """
    path = Path(given)
    if path.exists():
        return None
    name = parse_name(given)
    if isinstance(name, HubName) and path.parent.exists():
        raise ModelNameError(
            f"{given}: there is no such file or folder, but the folder {path.parent} exists"
            f"{nearest_path(path)}; for a model of that name on the hub, write "
            f"https://huggingface.co/{given}"
        )
    return name


def nearest(given: str, known: Iterable[str]) -> str:
    """The part of a message that proposes the most similar known name; empty if none is similar."""
    match = difflib.get_close_matches(given, sorted(known), n=1)
    return f"; did you mean {match[0]!r}?" if match else ""


def nearest_path(path: Path) -> str:
    """The part of a message that proposes what has the most similar name in the folder of a path
    that does not exist; empty if nothing has."""
    try:
        beside = {each.name: str(path.with_name(each.name)) for each in path.parent.iterdir()}
    except OSError:
        return ""
    match = difflib.get_close_matches(path.name, sorted(beside), n=1)
    return f"; did you mean {beside[match[0]]!r}?" if match else ""


def _of_pair(kind: str, rest: str) -> FirefoxName | ArgosName:
    pair, _, fragment = rest.partition("#")
    hashed = _SHA256.fullmatch(fragment)
    allowed = not fragment or (kind == "argos" and hashed)
    if not _PAIR.fullmatch(pair) or not allowed:
        hint = "; #sha256=HASH may follow" if kind == "argos" else ""
        raise ModelNameError(
            f"{kind}:{rest}: must be {kind}:FROM-TO, for example {kind}:de-en{hint}"
        )
    if kind == "firefox":
        return FirefoxName(pair)
    return ArgosName(pair, hashed[1].lower() if hashed else None)


def _of_url(given: str) -> UrlName:
    url, _, fragment = given.partition("#")
    hashed = _SHA256.fullmatch(fragment)
    if hashed is None:
        raise ModelNameError(
            f"{given}: a URL must end with #sha256= and the 64 digits of the file's hash, so that "
            "no other file is accepted; `sha256sum FILE` prints them"
        )
    name = UrlName(url, hashed[1].lower())
    if not name.file:
        raise ModelNameError(f"{given}: must name a file, but its path ends with a slash")
    return name


def slug(text: str) -> str:
    """A text as a folder name of at most 100 characters, which every system accepts."""
    plain = _safe(_UNSAFE.sub("--", text).strip("-."))
    if len(plain) <= _LONGEST:
        return plain
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{plain[: _LONGEST - 14]}--{digest}"


def _safe(text: str) -> str:
    """A text as the name of a file on any system, Windows included."""
    plain = _UNSAFE.sub("--", text)
    return f"_{plain}" if _DEVICES.fullmatch(plain) else plain
