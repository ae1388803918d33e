"""Subtitles: sentences over several cues, divided again by word links and times.

They are read here rather than by a library: the existing ones drop what they do not know (notes,
styles and settings of WebVTT, damaged cues) or rewrite it; here everything but the words stays.
"""
