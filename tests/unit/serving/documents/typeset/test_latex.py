from __future__ import annotations

import re

import pytest

from serving.documents.unit import Translated
from tests.unit.serving.documents.fakes import translated
from tests.unit.serving.text.fakes import backwards

PAGE = r"""\documentclass{article}
\usepackage[utf8]{inputenc} % ein Kommentar
\title{Der Titel}
\author{Anna Muster}
\begin{document}
\maketitle
\section{Erster Teil}\label{sec:eins}
Das ist \textbf{sehr wichtig} und steht in \cite{muster} auf S.~3, denn
$a^2 + b^2 = c^2$ gilt hier.

\begin{itemize}
  \item Ein Punkt
  \item Noch einer\footnote{Eine Note.} hier
\end{itemize}
\begin{verbatim}
bleibt so
\end{verbatim}
\begin{equation}
  x = 1 \text{bleibt}
\end{equation}
\begin{tabular}{ll}
\hline
Name & eine Stadt \\
\hline
\end{tabular}
\begin{figure}[h]
  \includegraphics[width=1cm]{bild.png}
  \caption{Ein Bild}
\end{figure}
\end{document}
nicht mehr
"""


def test_the_words_of_paragraphs_and_arguments_are_translated_and_all_else_stays() -> None:
    expected = PAGE
    for words in (
        "Der Titel",
        "Erster Teil", "Das ist ", "sehr wichtig", " und steht in ", " auf S", ", denn",
        " gilt hier", "Ein Punkt", "Noch einer", "Eine Note", "} hier", "Name", "eine Stadt",
        "Ein Bild",
    ):  # fmt: skip
        assert words in expected
        expected = expected.replace(words, words.upper(), 1)
    expected = expected.replace("DENN\n$a^2 + b^2 = c^2$ GILT", "DENN $a^2 + b^2 = c^2$\nGILT")
    assert translated(PAGE.encode(), "a.tex").decode() == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (r"das \emph{rote} Haus", r"HAUS \emph{ROTE} DAS"),
        (r"10\,\% von M\"uller \& S\"ohnen", None),
        (r"{\bf fett} gedruckt", r"GEDRUCKT {\bf FETT}"),
        (r"ein \LaTeX{} Text", r"TEXT \LaTeX{} EIN"),
        ("eins % Kommentar\nzwei", None),
        (r"\section{Offen", None),
        ("}} zu viele {", None),
        (r"\verb|a_b| ist da", None),
        (r"ein {} und \emph{}", r"{} UND EIN \emph{}"),
        (r"\onslide<2->{} das \alert<3>{rote} Haus", r"\onslide<2->{} HAUS \alert<3>{ROTE} DAS"),
        (r"\textcolor{red}{rot}", r"\textcolor{red}{ROT}"),
        (r"\href{http://x.de/_a}{hier}", r"\href{http://x.de/_a}{HIER}"),
        (r"a\footnote{eins\par zwei} b", None),
    ],
)
def test_markup_goes_with_its_words(source: str, expected: str | None) -> None:
    result = translated(source.encode(), "a.tex", backwards).decode()
    if expected:
        assert result == expected
    for sign in (r"\%", r"\&", "% Kommentar\n", r"\verb|a_b|", "{", "}"):
        assert result.count(sign) == source.replace(r"\"{u}", "").count(sign)


def test_empty_groups_and_accents_over_nothing_stay_at_their_words() -> None:
    source = r"IM PFAD \~{}USER/DATEN IST X\^{}2 -{}- SO \TeX{} ES {} WILL\,{} -- EIN \^{}."
    words = re.sub("[A-Z]{2,}|X(?=.\\^)", lambda m: m[0].lower(), source)
    assert translated(words.encode(), "a.tex").decode() == source


def test_overlays_of_slides_stay_at_their_commands() -> None:
    source = r"""\begin{frame}<1-2>[fragile]{TITEL}{UNTER \emph{TITEL}}
\begin{itemize}[<+->]
  \item<1-> DAS \alert<2>{ROTE} HAUS \textbf<2>{} UND \only<2>{MEHR} \uncover<3->{DAVON}
  \item<2-| alert@4>[BEGRIFF] EIN \textcolor<beamer:1| handout:0>{red}{WORT} \pause MEHR
  \item <3-> TEXT\footnote<2>{EINE NOTE} HIER
\end{itemize}
\onslide<3->
\begin{block}<2->{EIN BLOCK}
\includegraphics<2>[width=3cm]{bild} EIN \onslide+<+(1)->{BILD} DA
\end{block}
\begin{theorem}<4->[NAME] TEXT \end{theorem}
\end{frame}
\section<presentation>[KURZ]{EIN LANGER TITEL}
"""
    words = re.sub("[A-Z]+", lambda m: m[0].lower(), source)
    assert translated(words.encode(), "a.tex").decode() == source


@pytest.mark.parametrize(
    "name", ["circuitikz", "tikzcd", "dmath", "dgroup*", "luacode*", "pycode", "asy", "forest"]
)
def test_drawings_formulas_and_code_stay(name: str) -> None:
    inside = f"\\begin{{{name}}}[a=b]\nhier node[ground]{{}} bleibt $x$ alles\n\\end{{{name}}}"
    assert translated(f"eins\n{inside}\nzwei".encode(), "a.tex").decode() == (
        f"EINS\n{inside}\nZWEI"
    )


def test_schemes_of_reactions_stay() -> None:
    source = r"\schemestart a \arrow{->[heiss]} b \schemestop"
    result = translated(f"eins {source} zwei \\schemestart".encode(), "a.tex").decode()
    assert result == f"EINS {source} ZWEI \\schemestart"


def test_two_thousand_paragraphs_are_read_at_once() -> None:
    source = ("Das ist \\emph{ein} Satz mit $x$ und {Klammern}.\n\n" * 2000).encode()
    assert translated(source, "a.tex").count(b"SATZ") == 2000


@pytest.mark.parametrize(
    "source",
    [
        r"Wort hier.\\[2pt] Neue Zeile.\\*[1ex] Noch eine.",
        r"\begin{frame}[fragile]{Ein Titel} Text hier. \end{frame}",
        r"\begin{block}{Ein \emph{Block}} Text hier. \end{block}",
        r"\begin{definition}[Gruppe] Text hier. \end{definition}",
        r"\begin{description} \item[Ein Begriff] Text hier. \end{description}",
        r"\begin{tabular}{ll} \multicolumn{2}{c}{Breit} \\[3mm] Zelle & 5 \end{tabular}",
        r"Das sind z.\,B. 3\,\% mehr.",
        r"\textcolor[rgb]{1,0,0}{Roter Text} hier.",
    ],
)
def test_words_in_the_arguments_of_environments_items_and_cells_are_translated(source: str) -> None:
    text = "\\begin{document}\n" + source + "\n\\end{document}\n"
    words = ("Wort", "Neue", "Zeile", "Noch", "eine", "Ein", "Titel", "Text", "hier", "Block")
    words += ("Gruppe", "Begriff", "Breit", "Zelle", "Das", "sind", "mehr", "z", "Roter")
    expected = re.sub(rf"(?<!\\)\b(?:{'|'.join(words)})\b", lambda m: m[0].upper(), text)
    assert translated(text.encode(), "a.tex").decode() == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (r"\section[Kurz]{Ein langer Titel}", r"\section[KURZ]{EIN LANGER TITEL}"),
        (
            r"\caption[Ein \emph{Bild}]{Das ganze Bild}",
            r"\caption[EIN \emph{BILD}]{DAS GANZE BILD}",
        ),
        (r"\section*[head=kurz, tocentry={}]{Titel}", r"\section*[head=kurz, tocentry={}]{TITEL}"),
        (r"\footnotetext[3]{Eine Note}", r"\footnotetext[3]{EINE NOTE}"),
    ],
)
def test_a_short_title_is_translated_and_options_are_not(source: str, expected: str) -> None:
    assert translated(source.encode(), "a.tex").decode() == expected


def test_the_short_form_of_a_title_before_the_document_is_translated() -> None:
    page = r"\title[Kurz]{Der ganze Titel}\begin{document}\end{document}"
    expected = page.replace("Kurz", "KURZ").replace("Der ganze Titel", "DER GANZE TITEL")
    assert translated(page.encode(), "a.tex").decode() == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (r"etwa 50\,\% mehr", r"ETWA 50\,\% MEHR"),
        (r"5\,000\,km weit und 1.5\,kg", r"5\,000\,km WEIT UND 1.5\,kg"),
        (r"siehe Abbildung~\ref{fig:a} auf S.~12", r"SIEHE ABBILDUNG~\ref{fig:a} AUF S.~12"),
        (r"5 Hunde und 50\,kg", r"5 HUNDE UND 50\,kg"),
        (r"die 5 Hunde, $5\,x$ und so", r"DIE 5 HUNDE, $5\,x$ UND SO"),
        (r"in~einem Haus", "IN EINEM HAUS"),
    ],
)
def test_thin_and_tied_blanks_stay_beside_numbers_and_references(
    source: str, expected: str
) -> None:
    def with_usual_blanks(sentence: str) -> Translated:
        """As models write a translation."""
        return Translated(" ".join(sentence.upper().split()))

    assert translated(source.encode(), "a.tex", with_usual_blanks).decode() == expected
