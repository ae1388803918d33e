"""Parses XML from untrusted sources into a tree: no entity is expanded and nothing is fetched."""

from __future__ import annotations

from lxml import etree

from serving.errors import DocumentError

SPACE = "{http://www.w3.org/XML/1998/namespace}space"
"""The attribute by which blanks at both ends of a text are kept."""


def parsed(content: bytes, name: str) -> etree._ElementTree:
    """Parse a part into a tree. Raises DocumentError if it is not well-formed or declares entities.

    libxml2 itself refuses more than 256 nested elements and texts of over 10 MB.
    """
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, strip_cdata=False
    )
    try:
        tree = etree.ElementTree(etree.fromstring(content, parser))
    except (etree.XMLSyntaxError, ValueError) as error:
        raise not_well_formed(name, error) from error
    dtd = tree.docinfo.internalDTD
    if dtd is not None and any(True for _ in dtd.iterentities()):
        raise declares_entities(name)
    return tree


def not_well_formed(name: str, reason: object) -> DocumentError:
    """The error for a part that is not XML."""
    return DocumentError(f"{name} is not well-formed XML: {reason}")


def declares_entities(name: str) -> DocumentError:
    """The error for a part with entities, which could expand to very much text, or name other
    files."""
    return DocumentError(f"{name} declares entities, which documents do not need; it is refused")


def serialised(tree: etree._ElementTree) -> bytes:
    """A tree as bytes, in its encoding."""
    info = tree.docinfo
    content: bytes = etree.tostring(
        tree,
        xml_declaration=True,
        encoding=info.encoding or "UTF-8",
        standalone=info.standalone,
    )
    return content


def local(element: etree._Element) -> str:
    """The name of an element without its namespace; empty for comments and the like."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
