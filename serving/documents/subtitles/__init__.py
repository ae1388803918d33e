"""Subtitles: sentences over several cues, divided again by word links and times.

They are read here and not by a library: those that there are drop what they do not know (notes,
styles and settings of WebVTT, damaged cues) or write it anew; here all but the words stays.
"""
