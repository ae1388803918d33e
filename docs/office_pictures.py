"""The pictures of docs/how-to/documents.md: a report and a slide, before and after.

`PYTHONPATH=. python docs/office_pictures.py` from the repository's root; needs LibreOffice and
`pdftoppm`.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import docx
import pptx
from docx.shared import Cm
from pptx.util import Inches

from serving.translation.translator import Translator

IMAGES = Path("docs/images")
BUNDLE = Path("models/macaron-de-en")
_TIMEOUT_S = 180


def write_report(path: Path) -> None:
    """A page of Word with headings, styles, a list and a table."""
    report = docx.Document()
    section = report.sections[0]
    section.page_width, section.page_height = Cm(14.8), Cm(12)
    report.add_heading("Unser Garten im Sommer", 1)
    text = report.add_paragraph("Der Garten hinter dem Haus ist ")
    text.add_run("sehr alt").bold = True
    text.add_run(". Im Sommer blühen dort ")
    text.add_run("viele rote Rosen").italic = True
    text.add_run(", und abends sitzen wir unter dem Baum.")
    report.add_paragraph("Wir brauchen neues Werkzeug.", style="List Bullet")
    report.add_paragraph("Das Wasser ist zu teuer.", style="List Bullet")
    table = report.add_table(2, 2, style="Light Grid Accent 1")
    for cell, words in zip(
        [cell for row in table.rows for cell in row.cells],
        ("Monat", "Arbeit", "Mai", "Die Blumen gießen"),
        strict=True,
    ):
        cell.text = words
    report.save(str(path))


def write_slides(path: Path) -> None:
    """A slide of PowerPoint with a title, a list and a shape."""
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "Die Arbeit im Garten"
    frame = slide.placeholders[1].text_frame
    frame.text = "Der Baum muss geschnitten werden."
    point = frame.add_paragraph()
    point.text = "Wer hat Zeit am "
    run = point.add_run()
    run.text, run.font.bold = "nächsten Samstag", True
    point.add_run().text = "?"
    box = slide.shapes.add_shape(5, Inches(5), Inches(5), Inches(4), Inches(1.5))
    box.text_frame.text = "Danke für Ihre Hilfe!"
    show.save(str(path))


def draw(document: Path, picture: Path) -> None:
    """A picture of the first page, by LibreOffice in a profile of its own."""
    folder = document.parent
    profile = f"-env:UserInstallation=file://{folder}/profile"
    to_pdf = ["soffice", profile, "--headless", "--convert-to", "pdf", "--outdir", str(folder)]
    subprocess.run([*to_pdf, str(document)], check=True, timeout=_TIMEOUT_S, capture_output=True)
    to_png = ["pdftoppm", "-png", "-singlefile", "-scale-to", "480"]
    pdf = document.with_suffix(".pdf")
    subprocess.run([*to_png, str(pdf), str(picture.with_suffix(""))], check=True)


def main() -> None:
    """Write, translate and draw both."""
    translator = Translator(BUNDLE)
    with tempfile.TemporaryDirectory() as name:
        for kind, write in (("docx", write_report), ("pptx", write_slides)):
            before, after = (Path(name) / f"{when}.{kind}" for when in ("before", "after"))
            write(before)
            translator.translate_file(before, after)
            for each in (before, after):
                draw(each, IMAGES / f"{kind}-{each.stem}.png")


if __name__ == "__main__":
    main()
