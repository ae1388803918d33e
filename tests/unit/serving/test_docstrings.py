"""Docstrings below fields, beside what pydantic reads of the same classes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from serving.docstrings import field_docstrings


class Outer(BaseModel):
    """A class with fields that have docstrings, and some that have none."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    first: int
    """Of one line."""
    second: int = 2
    third: str = ""
    """Of two lines,
    the second of which is indented."""


class Inner(Outer):
    """One that is derived from it."""

    second: int = 3
    """Only here."""

    class Nested(BaseModel):
        """A class within a class."""

        model_config = ConfigDict(use_attribute_docstrings=True)

        first: int
        """Of the class within."""
        second: int
        """Not of the one around it."""


def test_they_are_those_that_pydantic_reads() -> None:
    class Local(Outer):
        """A class within a function."""

        third: str = "3"
        """Told anew."""

    for cls in (Outer, Inner, Inner.Nested, Local):
        wanted = {
            name: field.description for name, field in cls.model_fields.items() if field.description
        }
        assert len(wanted) >= 2
        assert field_docstrings(cls) == wanted


def test_a_class_without_source_has_none() -> None:
    assert field_docstrings(type("Made", (), {})) == {}
