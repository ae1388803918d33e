"""Office files: zip files of XML, in which the words of paragraphs are replaced and all else stays.

They are taken apart here, for the libraries that know them lose what they do not know: pictures,
links, notes.
"""
