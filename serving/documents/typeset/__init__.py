"""Languages that texts are typeset from: reStructuredText, AsciiDoc and LaTeX.

They are read here, line by line, rather than by a library: the existing ones tell what a text means
but not where it stands, and rewrite all of it.
"""
