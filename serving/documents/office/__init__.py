"""Office files: zip files of XML, in which the words of paragraphs are replaced and everything else
stays.

They are read here rather than by libraries, which lose parts that they do not know: pictures,
links, notes.
"""
