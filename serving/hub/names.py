"""The names that models have: what a user writes in place of a bundle's folder."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from serving.errors import ModelNameError

FORMS = (
    "OWNER/NAME of a hub (with @REVISION, or :FILE.gguf), firefox:FROM-TO, argos:FROM-TO, or "
    "https://HOST/FILE#sha256=HASH"
)
"""What a name may be, for messages."""
_PART = r"[A-Za-z0-9](?:[\w.-]*\w)?"
_HUB = re.compile(
    r"(?:https?://(?:www\.)?(?:huggingface|hf)\.co/)?"
    rf"(?P<repository>{_PART}/{_PART})/?"
    r"(?:@(?P<revision>[\w.][\w./-]*))?(?::(?P<file>[\w./-]+\.gguf))?"
)
_PAIR = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z]+)*-[A-Za-z]{2,3}(?:[-_][A-Za-z]+)*")
_SHA256 = re.compile(r"sha256=([0-9a-fA-F]{64})")
_UNSAFE = re.compile(r"[^\w.-]+")
_LONGEST = 100


@dataclass(frozen=True)
class HubName:
    """A repository on the hub of Hugging Face, or of a mirror."""

    repository: str
    """OWNER/NAME."""
    revision: str | None = None
    """A branch, a tag or a commit; None is the main branch."""
    file: str | None = None
    """A file of GGUF, where the repository has several."""

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return self.repository + revision + (f":{self.file}" if self.file else "")

    @property
    def title(self) -> str:
        """What a bundle of it is called."""
        return Path(self.file).stem if self.file else self.repository.rpartition("/")[2]


@dataclass(frozen=True)
class FirefoxName:
    """A student that Mozilla publishes for Firefox."""

    pair: str
    """Source and target as Mozilla's list has them, with a hyphen between: `de-en`."""

    def __str__(self) -> str:
        return f"firefox:{self.pair}"

    @property
    def title(self) -> str:
        """What a bundle of it is called."""
        return f"firefox-{self.pair}"


@dataclass(frozen=True)
class ArgosName:
    """A package of Argos Translate."""

    pair: str
    """Source and target as the index has them, with a hyphen between: `de-en`."""
    sha256: str | None = None
    """What the package must be, as the index gives no hash."""

    def __str__(self) -> str:
        return f"argos:{self.pair}" + (f"#sha256={self.sha256}" if self.sha256 else "")

    @property
    def title(self) -> str:
        """What a bundle of it is called."""
        return f"argos-{self.pair}"


@dataclass(frozen=True)
class UrlName:
    """A file anywhere, an archive or one file of a model, which must be what its hash says."""

    url: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.url}#sha256={self.sha256}"

    @property
    def file(self) -> str:
        """The file's name."""
        return urlsplit(self.url).path.rpartition("/")[2]

    @property
    def title(self) -> str:
        """What a bundle of it is called: the file's name up to what says its kind."""
        return re.split(r"\.(?:t|zip|argosmodel|gguf|pt|npz|bin)", self.file)[0] or "model"


Name = HubName | FirefoxName | ArgosName | UrlName


def parse_name(given: str) -> Name | None:
    """The name that a text is; None where it can only be a path.

    Raises ModelNameError for a text that begins as a name does and is none.
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
    """The name that a text is; raises ModelNameError for one that is none."""
    name = parse_name(given)
    if name is None:
        raise ModelNameError(f"{given}: is no name of a model; it must be {FORMS}")
    return name


def name_here(given: str) -> Name | None:
    """The name that a text stands for on this machine; None where it is a path: something is there,
    or it has no form of a name.

    Raises ModelNameError as `parse_name` does, and for OWNER/NAME where OWNER is a folder here
    without NAME: a slip in a path is not looked up on a hub.
    """
    path = Path(given)
    if path.exists():
        return None
    name = parse_name(given)
    if isinstance(name, HubName) and path.parent.exists():
        raise ModelNameError(
            f"{given}: there is no such file or folder, though there is {path.parent}; a model of "
            f"that name on a hub is called https://huggingface.co/{given} here"
        )
    return name


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
            "nothing else is served; `sha256sum FILE` prints them"
        )
    name = UrlName(url, hashed[1].lower())
    if not name.file:
        raise ModelNameError(f"{given}: must name a file, and its path ends with a slash")
    return name


def slug(text: str) -> str:
    """A text as the name of a folder, of at most 100 characters."""
    plain = _UNSAFE.sub("--", text).strip("-.")
    if len(plain) <= _LONGEST:
        return plain
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{plain[: _LONGEST - 14]}--{digest}"
