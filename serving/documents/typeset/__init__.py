"""Languages that texts are typeset from: reStructuredText, AsciiDoc and LaTeX.

They are read here, line by line, and not by a library: those that there are say what a text means
and not where it stands, and write all of it anew.
"""
